"""The item tables of one user: the shared one, the user's own, and the one that the scorer sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from solera.core.method import Method
from solera.core.spec import Home, Leaf
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
