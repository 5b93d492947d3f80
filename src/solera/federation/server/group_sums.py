"""Combine the opened sums of a round's groups.

One group is taken as it is: nothing can be said of a single node's part in it. Of three groups or more, the
server takes the median over the groups' means, so that one node moves a number no further than what honest
groups say. A group whose sum cannot be right is left out. Sums of methods of one round are added up, and so
are those that are covered by noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from solera.core.types import Floats
from solera.core.upload import Sums
from solera.engine.one_round import Sum
from solera.engine.server import Server
from solera.federation.common.protocol import RefusalError
from solera.federation.secure.influence import median_of, next_bound
from solera.federation.secure.masked import PEAKS, contribution_of, sums_of, users_in
from solera.federation.secure.shares import covered_sums
from solera.math.robust import combine

if TYPE_CHECKING:
    from solera.federation.server.coordinator import Coordinator

FEWEST = 3  # groups that can be compared


class GroupSum(NamedTuple):
    """One group's opened sum: of how many users who were asked, on how many nodes."""

    place: int
    values: dict[str, Floats]
    asked: int
    nodes: int


class Taken(NamedTuple):
    """How many users are in the sums that were taken, and of which groups these are."""

    users: int
    groups: set[int]


def take_in(coordinator: Coordinator, server: Server | Sum, sums: list[GroupSum]) -> Taken:
    """Add the sums of all groups to the round."""
    method, n_items = coordinator.method, coordinator.n_items
    if coordinator.private is not None:  # used as they are: they would not be opened twice
        for each in sums:
            if isinstance(server, Sum):
                assert method.one_round
                server.add(contribution_of(method, n_items, each.values, None))
            else:
                assert not method.one_round
                server.merge(covered_sums(method, n_items, each.values))
        return Taken(sum(each.asked for each in sums), {each.place for each in sums})
    if isinstance(server, Sum):
        return _add(coordinator, server, sums)
    return _combine(coordinator, server, sums)


def _add(coordinator: Coordinator, server: Sum, sums: list[GroupSum]) -> Taken:
    method, users, taken = coordinator.method, 0, set[int]()
    assert method.one_round
    for each in sums:
        try:
            server.add(contribution_of(method, coordinator.n_items, each.values, coordinator.max_norm))
            users += users_in(each.values, each.asked)
            taken.add(each.place)
        except RefusalError as error:
            _leave_out(coordinator, each, error, alone=len(sums) == 1)
    return Taken(users, taken)


def _combine(coordinator: Coordinator, server: Server, sums: list[GroupSum]) -> Taken:
    method, n_items = coordinator.method, coordinator.n_items
    assert not method.one_round
    users, found, medians, taken = 0, list[Sums](), list[float](), set[int]()
    for each in sums:
        try:
            in_sum = users_in(each.values, each.asked)
            found.append(sums_of(method, n_items, each.values, coordinator.max_norm))
        except RefusalError as error:
            _leave_out(coordinator, each, error, alone=len(sums) == 1)
            continue
        users += in_sum
        medians += [median] if (median := median_of(each.values[PEAKS])) else []
        taken.add(each.place)
    how = coordinator.settings.combine
    if len(found) >= FEWEST and how != "mean":
        found = [combine(found, method.leaves, n_items, how)]
    for one in found:
        server.merge(one)
    if coordinator.adapts:
        coordinator.progress.bound = next_bound(coordinator.progress.bound, medians)
    return Taken(users, taken)


def _leave_out(coordinator: Coordinator, each: GroupSum, error: RefusalError, *, alone: bool) -> None:
    if alone:
        raise error
    coordinator.journal(
        "group lost", round=coordinator.progress.number + 1, message=error.message, group=each.place
    )
