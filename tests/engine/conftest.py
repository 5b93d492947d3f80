import pytest

pytest.register_assert_rewrite("solera.testing")

from solera.testing import MethodConformance  # noqa: E402 - after its assertions are rewritten

# What the everyday suite asks of a method. Classes with `whole`, one of each kind of method, have all tests
# in it.
EVERYDAY = (
    "test_block_is_reference[block3",
    "test_training_moves",
    "test_nothing_undeclared_leaves_a_client[block",
    "test_resumed_is_uninterrupted",
    "test_config_round_trip",
    "test_clients_that_are_not_chosen",
    "test_padding_is_inert",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is left out here is run by `pytest -m slow tests/engine`."""
    for item in items:
        cls = getattr(item, "cls", None)
        brief = cls and issubclass(cls, MethodConformance) and not getattr(cls, "whole", False)
        if brief and not item.name.startswith(EVERYDAY):
            item.add_marker(pytest.mark.slow)
