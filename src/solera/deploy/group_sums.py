"""What a server makes of the opened sums of a round's groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from solera.core.closed_form import ClosedForm
from solera.deploy.masked import contribution_of, sums_of, users_in
from solera.deploy.shares import covered_sums
from solera.engine.one_round import Sum
from solera.engine.server import Server
from solera.privacy.secagg.encoding import Floats

if TYPE_CHECKING:
    from solera.deploy.coordinator import Coordinator


class GroupSum(NamedTuple):
    """One group's opened sum: of how many users who were asked, on how many nodes."""

    values: dict[str, Floats]
    asked: int
    nodes: int


def take_in(coordinator: Coordinator, server: Server | Sum, sums: list[GroupSum]) -> int:
    """Take the sums of all groups into the round; how many users are in them."""
    method, n_items = coordinator.method, coordinator.n_items
    covered = (
        coordinator.private is not None
    )  # then they are used as they are: they would not be opened twice
    users = 0
    for each in sums:
        users += each.asked if covered else users_in(each.values, each.asked)
        if isinstance(server, Sum):
            assert isinstance(method, ClosedForm)
            server.add(
                contribution_of(method, n_items, each.values, None if covered else coordinator.max_norm)
            )
        else:
            assert not isinstance(method, ClosedForm)
            server.merge(
                covered_sums(method, n_items, each.values)
                if covered
                else sums_of(method, n_items, each.values, coordinator.max_norm)
            )
    return users
