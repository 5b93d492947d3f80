"""The effort of tuning, the same for every method, counted in passes.

A pass is the work of all clients in one round: rounds times clients, divided by the number of clients.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from pydantic import Field

from solera.core.errors import RunError
from solera.core.frozen import Frozen
from solera.data.interactions import Interactions
from solera.runs.settings import RunConfig


class Effort(Frozen):
    """How many trials there are, and how long each of them and a final run may be."""

    trials: int = Field(default=10, ge=1, description="that did not diverge")
    passes: int = Field(default=100, ge=1, description="of a trial or a final run at most")
    patience: int = Field(default=30, ge=1, description="passes without a better figure after which it ends")
    users: int | None = Field(default=None, ge=1, description="tune on a sample of so many users")


def full_length(config: RunConfig, effort: Effort, users: int | None) -> RunConfig:
    """The config with the rounds and patience of a run on so many users, validated once in a pass."""
    if config.built.rounds_needed == 1:
        return config.model_copy(update={"rounds": 1})
    each = _rounds_of_pass(config.built.client_share, users)
    length = {"rounds": effort.passes * each, "patience": effort.patience * each, "evaluate_every": each}
    return config.model_copy(update=length)


def _rounds_of_pass(clients: float, users: int | None) -> int:
    """Whole rounds in a pass, at least one, with a share of the clients (up to 1) or a number of them."""
    if clients <= 1:
        return max(1, int(1 / clients))
    if users is None:
        raise RunError(
            f"clients_per_round={clients:g} is a number of clients, and the study has no number of users",
            "make the study again with this version",
        )
    return max(1, int(users / clients))


def some_users(data: Interactions, count: int | None) -> Interactions:
    """A sample of the users, always the same one, with the whole catalogue; all, if there are no more."""
    if count is None or data.n_users <= count:
        return data
    chosen = np.sort(np.random.default_rng(0).choice(data.n_users, count, replace=False))
    rows = data.select(np.isin(data.users, chosen))
    users = np.searchsorted(chosen, rows.users).astype(np.int32)
    return replace(rows, users=users, user_map=data.user_map.take(chosen), origin=None)


def chance(n_items: int) -> float:
    """NDCG@10 of a random order of so many items, one of which is relevant."""
    return sum(1 / math.log2(1 + place) for place in range(1, min(10, n_items) + 1)) / n_items
