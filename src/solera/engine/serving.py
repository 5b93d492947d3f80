"""Serving after training: one user's best items, users who did not take part, and newer histories.

A refresh is what a device can do alone when its owner has chosen something since the last round. Each local
round is the method's own local training, and begins with the last shared leaves, as the next round would.
There are `REFRESH_ROUNDS` of them, but no more than the federation has had: a model that is best after one
round would be overtrained. Clients store what they store after any round: personal leaves, and rows that
they keep. Nothing is sent.
"""

from __future__ import annotations

from collections import deque
from copy import copy

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import AnyMethod
from solera.core.leaf import Home, Params
from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.one_round import OneRound
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import Simulation


def best_unseen(scores: Tensor, seen: Ints, k: int) -> list[tuple[int, float]]:
    """The k best items that are not among the seen ones, with their scores, best first."""
    known = torch.from_numpy(seen)
    scores[known] = -torch.inf
    best = torch.topk(scores, min(k, len(scores) - len(torch.unique(known))))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def newcomer(
    method: AnyMethod,
    shared: Params,
    history: Ints,
    n_items: int,
    *,
    seed: int,
    dtype: torch.dtype,
    days: Floats | None = None,
    asked: float | None = None,
) -> tuple[Simulation | OneRound, Ragged]:
    """A federation of one user with the trained shared parameters, and the user's history, oldest first.

    `days` are those of the history, `asked` that of the request, if they are known. For a table of which
    every client has its own version, `shared` holds the version this user starts from.
    """
    ends = np.array([0, len(history)])
    known = Ragged(ends, history, days, None if asked is None else np.array([asked]))
    clients = ClientData(known, known.sorted_unique(), n_items)
    place = torch.device("cpu")
    if method.one_round:
        one_round = OneRound(method, clients, device=place, dtype=dtype)
        one_round.restore(shared, {})
        return one_round, known
    simulation = Simulation(method, clients, train_one_by_one, seed=seed, device=place, dtype=dtype)
    start = {name: value[None] if name in method.tailored else value for name, value in shared.items()}
    simulation.restore(start | simulation.state.memory, simulation.state.personal.tensors())
    return simulation, known


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
