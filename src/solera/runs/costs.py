"""What a method costs: parameters on a client and on the server, seconds of both, a client's memory."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from solera.core.closed_form import AnyMethod
from solera.core.frozen import Frozen
from solera.core.leaf import Home
from solera.core.method import Method
from solera.core.parts import Adam
from solera.runs.result import RoundEntry

SINGLE = ROW_NUMBER = 4  # bytes of a number, and of the number of a row in an upload


class Costs(Frozen):
    """Parameters, and the median over rounds of a mean client's seconds and of the server's."""

    client_parameters: int
    server_parameters: int
    seconds_per_client: float | None = None
    seconds_of_server: float | None = None


def costs(method: AnyMethod, n_users: int, n_items: int, history: Sequence[RoundEntry]) -> Costs | None:
    """The costs of a finished run; None for a method that is solved in one round."""
    if method.one_round:
        return None
    sizes = _sizes(method, n_items)
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


def client_bytes(method: Method, n_items: int, touched: float) -> int:
    """Memory of a client while it trains, computed for so many touched rows, in single precision.

    It holds all leaves whole, those received and its own. Of every leaf that it trains it also holds a
    working copy and a gradient, and two running means under Adam: of tables, of the touched rows alone.
    Samples, activations and the program itself are not counted.
    """
    leaves = {leaf.name: leaf for leaf in method.leaves}
    states: dict[str, int] = {}
    for stage in method.update.stages(method.context(0, n_items)):
        for part in (part for move in stage.moves for part in move.parts):
            kept = 4 if isinstance(part.optimizer, Adam) else 2
            states |= {name: max(kept, states.get(name, 0)) for name in part.leaves}
    trained = sum(
        count * leaves[name].size * (touched if leaves[name].per_item else 1)
        for name, count in states.items()
    )
    return round(SINGLE * (sum(_sizes(method, n_items).values()) + trained))


def touched_rows(method: Method, bytes_up: float) -> float | None:
    """Rows of an uncoded upload of so many bytes; None if a client sends no rows."""
    sent = [leaf for leaf in method.leaves if leaf.sent_as]
    per_row = sum(leaf.size for leaf in sent if leaf.per_item)
    fixed = sum(leaf.size for leaf in sent if not leaf.per_item)
    return (bytes_up - SINGLE * fixed) / (SINGLE * per_row + ROW_NUMBER) if per_row else None


def _sizes(method: Method, n_items: int) -> dict[str, int]:
    """Numbers in every leaf. A derived leaf is computed from another one, and need not be stored."""
    return {
        leaf.name: leaf.size * (n_items if leaf.per_item else 1)
        for leaf in method.leaves
        if not leaf.derived_from
    }
