"""What a method costs: parameters on a client and on the server, and seconds of both."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from solera.core.federated import AnyMethod
from solera.core.frozen import Frozen
from solera.core.method import Method
from solera.core.spec import Home
from solera.runs.result import RoundEntry


class Costs(Frozen):
    """Parameters, and the median over rounds of a mean client's seconds and of the server's."""

    client_parameters: int
    server_parameters: int
    seconds_per_client: float | None = None
    seconds_of_server: float | None = None


def costs(method: AnyMethod, n_users: int, n_items: int, history: Sequence[RoundEntry]) -> Costs | None:
    """The costs of a finished run; None for a method that is solved in one round."""
    if not isinstance(method, Method):
        return None
    # A derived leaf is computed from another one, and need not be stored.
    sizes = {
        leaf.name: leaf.size * (n_items if leaf.per_item else 1)
        for leaf in method.leaves
        if not leaf.derived_from
    }
    shared = [leaf.name for leaf in method.select(home=Home.SHARED) if leaf.name in sizes]
    timed = [entry for entry in history if entry.seconds.server is not None and entry.clients]
    clients = [(entry.seconds.train - (entry.seconds.server or 0.0)) / entry.clients for entry in timed]
    return Costs(
        client_parameters=sum(sizes.values()),
        server_parameters=sum(sizes[name] * (n_users if name in method.tailored else 1) for name in shared),
        seconds_per_client=statistics.median(clients) if timed else None,
        seconds_of_server=statistics.median(entry.seconds.server or 0.0 for entry in timed)
        if timed
        else None,
    )
