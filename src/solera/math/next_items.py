"""The regression of the next items on fading memories of a history, in closed form.

For the items i_0 … i_{L−1} of a history and every position t but the last, with one memory per decay a:

    s_t = Σ_{k ≤ t} a^(t−k) e(i_k)            stacked over the decays; a = 0 is the last item alone
    y_t = Σ_{j < F} b^j e(i_{t+1+j})          what comes next, the nearest most
    S   = Σ_t s_t s_tᵀ,   T = Σ_t s_t y_tᵀ    both zero outside the history's items

The s_t are not computed one by one, because the sums over t are geometric. For positions k ≤ l and decays a,
c

    S[k, l] = a^(l−k) · Σ_{m < L−1−l} (ac)^m,         T[k, l] = Σ_{j < min(F, l−k)} b^j a^(l−k−1−j),

so T depends only on l − k, and S on l − k and on how many positions follow.

With `Timing` memories fade by days instead of positions, after the time interval-aware weighting of Park et
al. ("Temporal Linear Item-Item Model for Sequential Recommendation", WSDM 2025). With the day τ_k of item k:

    s_t = Σ_{k ≤ t} max(a^((u_t − τ_k) / D), c) e(i_k),    u_t = τ_t, or τ_{t+1} if memories fade until then

If all gaps are D days and c = 0, these are the memories above, in the second case times a.
"""

from __future__ import annotations

from functools import cache
from typing import Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from solera.core.content import AttributeOptions, AttributePrior
from solera.core.context import Decays
from solera.core.types import Floats, Ints
from solera.math.fading import Timing


class NextItemOptions(AttributeOptions):
    """Options of the regression, in FedSLIST and in its centralized twin."""

    decays: Decays = Field(
        default=(0.6, 0.95),
        description="of the memories, e.g. 0.6,0.95; 0 is the last item alone, 1 forgets nothing",
    )
    horizon: int = Field(default=3, ge=1, description="F: how many of the next items are learned from")
    horizon_decay: float = Field(
        default=0.5, ge=0, le=1, description="b: weight of an item against the one before it"
    )
    ridge: float = Field(default=0.5, gt=0, description="λ: weight of ‖B‖², in units of the mean diagonal")
    popularity_discount: float = Field(
        default=0.0,
        ge=0,
        description="g: scores are divided by (1 + popularity)^g; what everybody has counts less",
    )
    decay_days: float = Field(
        default=0.0, ge=0, description="D: days of a step of a decay, by the times of items; 0: a position"
    )
    least_weight: float = Field(
        default=0.0, ge=0, lt=1, description="c: what memories keep of an item however old, with decay_days"
    )
    until_next: bool = Field(
        default=False, description="memories fade until the next item's time, the request's; with decay_days"
    )

    @model_validator(mode="after")
    def _timed(self) -> Self:
        if not self.decay_days and (self.least_weight or self.until_next):
            raise ValueError("least_weight and until_next need decay_days")
        return self

    @property
    def timing(self) -> Timing | None:
        """How memories fade by days, if they do."""
        return Timing(self.decay_days, self.least_weight, self.until_next) if self.decay_days else None

    def products(self, length: int, days: Floats | None = None) -> tuple[Floats, Floats]:
        """S and T over the positions of a history."""
        if self.timing and days is not None:
            return self.timing.products(days, self.decays, self.horizon, self.horizon_decay)
        following = next_products(length, self.decays, self.horizon, self.horizon_decay)
        return memory_products(length, self.decays), following


def memory_products(length: int, decays: tuple[float, ...]) -> Floats:
    """S over the positions of a history of so many items: [decays, length, decays, length]."""
    powers = np.stack([_later(_rounded_up(length), a)[:length, :length] for a in decays])
    follow = np.arange(length - 1, -1, -1)  # positions that follow and have a next item
    steps = _geometric(np.multiply.outer(decays, decays), follow)  # [a, c, position]
    # a^(l−k) times the sum from l on if k ≤ l; otherwise c^(k−l) times the sum from k on.
    memories = powers[:, None] * steps[:, :, None]
    earlier = np.swapaxes(powers, 1, 2) * (1 - np.eye(length))
    memories += earlier[None] * steps[..., None]
    return memories.transpose(0, 2, 1, 3)


def next_products(length: int, decays: tuple[float, ...], horizon: int, horizon_decay: float) -> Floats:
    """T over the positions of a history of so many items: [decays, length, 1, length]."""
    size = _rounded_up(length)
    found = [_next(size, a, horizon, horizon_decay)[:length, :length] for a in decays]
    return np.stack(found)[:, :, None]


def next_item_weights(
    memories: Tensor, following: Tensor, ridge: float, discount: float, prior: AttributePrior
) -> Tensor:
    """B = (S + ridge · mean diag(S) · I)⁻¹ T / (1 + n)^discount. S is overwritten.

    n is the diagonal of S for the first memory, a popularity. A prior has another matrix in the place of I,
    for every memory, and spreads T over items with the same attributes; an item with no entry in T is cold.
    """
    n_items = following.shape[1]
    popularity, counts = memories.diagonal()[:n_items].clone(), following[:n_items].sum(0)
    reg = ridge * float(memories.diagonal().mean())
    if penalty := prior.ridge(memories):
        penalty.add_to(memories, reg)
    else:
        memories.diagonal().add_(reg)
    weights = torch.cholesky_solve(following, torch.linalg.cholesky(memories))
    return prior.spread(weights, counts) / (1 + popularity).pow(discount)


def _rounded_up(length: int) -> int:
    return 1 << max(4, (length - 1).bit_length())


@cache
def _later(length: int, decay: float) -> Floats:
    """decay^(l − k) where k ≤ l, else 0."""
    lag = np.arange(length) - np.arange(length)[:, None]
    return np.where(lag >= 0, np.power(decay, np.maximum(lag, 0)), 0.0)


@cache
def _next(length: int, decay: float, horizon: int, horizon_decay: float) -> Floats:
    """Σ_{j < min(F, l − k)} b^j a^(l − k − 1 − j) where k < l, else 0."""
    lag = np.arange(length) - np.arange(length)[:, None] - 1
    terms = (
        np.where(lag >= j, horizon_decay**j * np.power(decay, np.maximum(lag - j, 0)), 0.0)
        for j in range(min(horizon, length))
    )
    total: Floats = np.sum(list(terms), axis=0)
    return total


def _geometric(ratio: Floats, terms: Ints) -> Floats:
    """Σ_{m < terms} ratio^m, for all pairs of both: [..., len(terms)]."""
    ratio = ratio[..., None]
    below = np.where(ratio < 1, ratio, 0.5)
    return np.where(ratio < 1, (1 - np.power(below, terms)) / (1 - below), terms)
