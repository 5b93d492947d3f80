"""Item tables: those that affect a user, whose serves the user best, and what dimensions they use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from solera.core.leaf import Home, Leaf
from solera.core.method import Method
from solera.core.types import Ints
from solera.engine import Simulation

Table = NDArray[np.float64]  # [items, dimensions]
SHARED, TAILORED, KEPT, OWN, ADDED, SERVED = (
    "shared",
    "shared, made for the user",
    "kept by the user",
    "the user's own",
    "what the user adds",
    "as it is served",
)
OWNERS = THEIR_OWN, THE_SERVERS, ANOTHERS = "their own", "the server's", "another user's"


def item_tables(simulation: Simulation, user: int) -> dict[str, Table]:
    """The tables of item vectors that affect a user, by kind.

    The last one is the table that the scorer sees, which may equal one of the others. What a user adds to a
    kept table, for example with a low-rank part, is the difference between the two.
    """
    method, state = simulation.method, simulation.state
    held = simulation.held(np.array([user]))
    with torch.no_grad():
        served = _whole(method.view.see(held))
    tables = {}
    for leaf in leaves_like(method, served.shape[1:]):
        if leaf.home is Home.PERSONAL:
            tables[OWN] = _whole(held[leaf.name])
            continue
        shared = state.shared[leaf.name]
        tailored = leaf.name in method.tailored
        tables[TAILORED if tailored else SHARED] = _whole(shared[user] if tailored else shared)
        if leaf.name in method.view.keeps:
            tables[KEPT] = _whole(held[leaf.name])
    if OWN not in tables and KEPT in tables:
        tables[ADDED] = served - tables[KEPT]
    return tables | {SERVED: served}


def leaves_like(method: Method, row: tuple[int, ...]) -> Iterator[Leaf]:
    """The tables that are not derived and whose rows have the shape of those that the scorer sees."""
    return (leaf for leaf in method.select(per_item=True) if leaf.shape == row and not leaf.derived_from)


def told_apart(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Drop tables that are zero, and the served table if it equals one of the others."""
    others = {kind: table for kind, table in tables.items() if kind != SERVED and table.any()}
    served = tables.get(SERVED)
    if served is None or any(np.array_equal(served, table) for table in others.values()):
        return others
    return others | {SERVED: served}


def user_vector(method: Method) -> str:
    """The leaf that holds a user's own vector; empty if users have none."""
    return next(
        (
            leaf.name
            for leaf in method.scorer.leaves
            if leaf.home is Home.PERSONAL and not leaf.per_item and len(leaf.shape) == 1 and leaf.size > 1
        ),
        "",
    )


def _whole(values: torch.Tensor) -> Table:
    """One user's table, in double precision."""
    found: Table = values.reshape(values.shape[-2:]).cpu().double().numpy()
    return found


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


def singular_values(table: Table) -> Table:
    """In descending order; from the small matrix of inner products, which is enough for a picture."""
    eigen = np.linalg.eigvalsh(table.T @ table)[::-1]
    values: Table = np.sqrt(np.clip(eigen, 0.0, None))
    return values


def information_abundance(values: Table) -> float:
    """The sum of singular values over the largest: d where all dimensions matter alike, else less."""
    return float(values.sum() / values[0])


def principal_plane(table: Table) -> tuple[Table, float]:
    """Coordinates on the two directions of most variance, and the share of the variance they have."""
    centred = table - table.mean(0)
    values, directions = np.linalg.eigh(centred.T @ centred)
    return centred @ directions[:, :-3:-1], float(values[-2:].sum() / values.sum())
