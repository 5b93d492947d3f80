import pytest

pytest.register_assert_rewrite("solera.testing")

EVERYDAY = ("block0", "block3")  # of the ways to cut clients into blocks


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Plug-ins have many combinations: the everyday suite tries two of the six cuts with each."""
    for item in items:
        cut = item.callspec.id if hasattr(item, "callspec") else ""
        if item.path.name == "test_plugins.py" and cut.startswith("block") and not cut.startswith(EVERYDAY):
            item.add_marker(pytest.mark.slow)
