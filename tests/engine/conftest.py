import pytest

pytest.register_assert_rewrite("solera.testing")

EVERYDAY = ("block0", "block3")  # of the ways to cut clients into blocks
# What the everyday suite asks of a class that says `brief`: another form of a method, or a plug-in on another
# backbone, whose first form has all tests. The reference engine runs once.
BRIEF = (
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
        if getattr(getattr(item, "cls", None), "brief", False):
            is_everyday = item.name.startswith(BRIEF)
        else:
            cut = item.callspec.id if hasattr(item, "callspec") else ""
            is_everyday = item.path.name != "test_plugins.py" or not cut.startswith("block")
            is_everyday |= cut.startswith(EVERYDAY)
        if not is_everyday:
            item.add_marker(pytest.mark.slow)
