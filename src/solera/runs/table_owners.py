"""Compare whose item table serves a user best: the user's own, the server's or another user's."""

from __future__ import annotations

import numpy as np
import torch

from solera.core.arrays import Ints
from solera.core.spec import Home
from solera.engine import Simulation
from solera.runs.tables import leaves_like

OWNERS = THEIR_OWN, THE_SERVERS, ANOTHERS = "their own", "the server's", "another user's"


def owners(simulation: Simulation) -> tuple[str, ...]:
    """The owners whose item tables users can be served with; empty if all are the same or none is shared."""
    view = simulation.method.view
    personal = view.keeps or any(leaf.home is Home.PERSONAL for leaf in view.leaves)
    return OWNERS if personal and _shared_table(simulation) else ()


def scores_with(simulation: Simulation, owner: str, clients: Ints) -> torch.Tensor:
    """Scores [clients, items] from the clients' own scorers and the item table of one of the `owners`.

    Another user is the next one. (Methods that score by a user's history share their tables.)
    """
    method, state = simulation.method, simulation.state
    params = simulation.held(clients)
    with torch.no_grad():
        if owner == THE_SERVERS:
            name = _shared_table(simulation)
            shared = state.shared[name]
            return method.scorer.score(params, shared[clients] if name in method.tailored else shared)
        if owner == ANOTHERS:
            others = simulation.held((clients + 1) % simulation.data.n_clients)
            params |= {leaf.name: others[leaf.name] for leaf in method.view.leaves}
        return method.score(params)


def _shared_table(simulation: Simulation) -> str:
    """The leaf with the server's table if the scorer can use its rows directly; otherwise empty."""
    method = simulation.method
    with torch.no_grad():
        seen = method.view.see(simulation.held(np.array([0])))
    tables = leaves_like(method, tuple(seen.shape[-1:]))
    return next((leaf.name for leaf in tables if leaf.home is Home.SHARED), "")
