"""Refresh clients on longer histories: each trains for some more rounds on its own, and nothing is sent.

This is what a device can do alone when its owner has chosen something since the last round. Each local round
is the method's own local training, and begins with the last shared leaves, as the next round would. There are
`REFRESH_ROUNDS` of them, but no more than the federation has had: a model that is best after one round would
be overtrained. Clients store what they store after any round: personal leaves, and rows that they keep.
"""

from __future__ import annotations

from collections import deque
from copy import copy

from solera.core.leaf import Home
from solera.core.types import Ints
from solera.data.sampling import ClientData
from solera.engine.simulation import Simulation

REFRESH_ROUNDS = 5


def refresh_rounds(done: int) -> int:
    """The number of local rounds of a refresh after so many rounds."""
    return min(REFRESH_ROUNDS, done)


def refreshed_leaves(simulation: Simulation, round_: int = 0) -> tuple[str, ...]:
    """The leaves that a refresh changes: personal ones that are trained, and shared ones with kept rows."""
    method = simulation.method
    moves = (move for stage in simulation.task(round_).stages for move in stage.moves)
    moved = {name for move in moves for name in move.all_leaves}
    personal = tuple(leaf.name for leaf in method.select(home=Home.PERSONAL) if leaf.name in moved)
    return (*personal, *(f"own rows of {name}" for name in method.view.keeps))


def refreshed(
    simulation: Simulation, data: ClientData, clients: Ints, round_: int, rounds: int | None = None
) -> Simulation:
    """A copy of the federation whose clients have been refreshed on `data`, after `round_` rounds.

    `rounds` is the number of local rounds, if it is not to be that of the rule.
    """
    twin = copy(simulation)
    twin.state, twin.data = simulation.state.copy(), data
    for number in range(round_, round_ + (refresh_rounds(round_) if rounds is None else rounds)):
        deque(twin.train_clients(number, clients), maxlen=0)
    return twin
