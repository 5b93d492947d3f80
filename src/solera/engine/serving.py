"""Serving: one user's best items, and a federation of one user who did not take part in training."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import AnyMethod
from solera.core.leaf import Params
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
