import pytest

pytest.register_assert_rewrite("solera.testing")
