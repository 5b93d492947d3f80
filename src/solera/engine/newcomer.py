"""A federation of one user who was not there when it was trained."""

from __future__ import annotations

import numpy as np
import torch

from solera.core.closed_form import ClosedForm
from solera.core.federated import AnyMethod
from solera.core.spec import Params
from solera.data.ragged import Ints, Ragged
from solera.data.sampling import ClientData
from solera.engine.one_round import OneRound
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import Simulation


def newcomer(
    method: AnyMethod, shared: Params, history: Ints, n_items: int, *, seed: int, dtype: torch.dtype
) -> tuple[Simulation | OneRound, Ragged]:
    """One user with a history, oldest first, and the trained shared parameters; and that history.

    Of a table that every client has its own version of, `shared` holds the one this user starts from.
    """
    known = Ragged.of_lengths(np.array([len(history)]), history)
    clients = ClientData(known, known.sorted_unique(), n_items)
    place = torch.device("cpu")
    if isinstance(method, ClosedForm):
        one_round = OneRound(method, clients, device=place, dtype=dtype)
        one_round.restore(shared, {})
        return one_round, known
    simulation = Simulation(method, clients, train_one_by_one, seed=seed, device=place, dtype=dtype)
    start = {name: value[None] if name in method.tailored else value for name, value in shared.items()}
    simulation.restore(start | simulation.state.memory, simulation.state.personal.tensors())
    return simulation, known
