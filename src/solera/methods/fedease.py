"""FedEASE: exact EASE from one round.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data" (WWW 2019). EASE only needs the sum of the users'
x_u x_uᵀ, where x_u marks the items of user u:

    client:     sends x_u x_uᵀ, ones at the pairs of its own items
    server:     P = (Σ_u x_u x_uᵀ + reg · I)⁻¹,   B = I − P · diag(1 / diag P)
    device:     score(i) = Σ_k recency^age(k) · B_ki over its own items k

With `sketch` = s the client sends x_u (x_uᵀ Ω) instead, s numbers for each of its items, where Ω [items, s]
is a public matrix of ±1. The server computes Nyström's approximation of the sum from it (`math.sketch`).
Under secure aggregation, where every client sends numbers for all items, this takes items · s numbers instead
of items² / 2.

With `neighbours` = k the sum stays sparse, and every item i has weights from k items N only, those with the
largest co-occurrence (`math.sparse_ridge`): (G[N, N] + reg · I) b = G[N, i] with G = Σ_u x_u x_uᵀ.

With `newest` = c only the c newest items of a history count. With `least_clients` = T entries of G below T
are taken for 0: that is what a server knows that receives `privacy.reports`.

With `recency` 1 every item of the history counts the same, as in EASE. Below 1 recent items count more. Only
the device knows the order of its items, never the server. With `decay_days` = D an item counts
recency^(days since / D) instead.

With `source_attributes` = ρ and `target_attributes` = τ items with the same attributes have similar weights
(`core.content`). With the attribute vectors F of items, the ridge becomes λ tr(Bᵀ (I + ρ F Fᵀ)⁻¹ B), and then
B ← B (I + τ F Fᵀ) with a zero diagonal. An item in no training row is scored by its
attributes, or with `cold_neighbours` like the nearest items that are in some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from solera.core.closed_form import Channels, ClosedForm, ClosedFormConfig, Contribution, Solve
from solera.core.content import NO_PRIOR, AttributePrior
from solera.core.sparse import Rows, at_least
from solera.core.types import Floats, Ints
from solera.math.fading import Timing
from solera.math.linear import without_diagonal
from solera.math.sketch import of_items, symmetric_from
from solera.math.sparse_ridge import of_upper, solved
from solera.methods.parts import OwnHistory


class FedEASEConfig(ClosedFormConfig):
    """Defaults: those of the centralized baseline."""

    reg: float = Field(
        default=500.0, gt=0, description="weight of ‖B‖², in interactions: larger trusts rare items less"
    )
    recency: float = Field(
        default=1.0, gt=0, le=1, description="weight of an item against that of the next newer one"
    )
    sketch: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="numbers sent per item, a random sketch; 0: pairs of items themselves",
    )
    newest: int = Field(
        default=0, ge=0, description="items of a history that it is learned from, the newest ones; 0: all"
    )
    least_clients: int = Field(
        default=1,
        ge=1,
        description="pairs that fewer clients have are left out, as by threshold reports; needs neighbours",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.least_clients > 1 and not self.neighbours:
            raise ValueError("least_clients needs neighbours, e.g. neighbours=100")
        if self.sketch and self.neighbours:
            raise ValueError("a sketch has no sparse form: omit sketch or neighbours")
        return self


@dataclass(frozen=True)
class Pairs:
    """Ones at the pairs of the client's own items, of all or of the newest."""

    newest: int = 0
    label: str = "pairs of own items"
    sums: Mapping[str, Channels] = field(
        default_factory=lambda: {"gram": Channels(1, 1, symmetric=True, largest=1, whole=True)}
    )

    def of(self, sequence: Ints, days: Floats | None = None) -> Contribution:
        """x xᵀ. A repeated item counts once."""
        items = np.unique(sequence[-self.newest :])
        return Contribution(items, {"gram": np.ones((1, len(items), 1, len(items)))})


@dataclass(frozen=True)
class Sketch:
    """Pairs of the client's own items, times a public matrix of ±1."""

    size: int
    newest: int = 0

    @property
    def label(self) -> str:
        """The label with the size of the sketch."""
        return f"pairs of own items, sketched to {self.size}"

    @property
    def sums(self) -> Mapping[str, Channels]:
        """One row per item."""
        return {"sketch": Channels(1, 1, width=self.size)}

    def of(self, sequence: Ints, days: Floats | None = None) -> Contribution:
        """x (xᵀ Ω), a client's sketch."""
        items = np.unique(sequence[-self.newest :])
        added = of_items(items, self.size).sum(0, dtype=np.float64)
        return Contribution(items, {"sketch": np.tile(added, (1, len(items), 1, 1))})


@dataclass(frozen=True)
class InverseOfSketched(Solve):
    """EASE's closed form, applied to the approximation from a sketch."""

    reg: float
    label: str = "sum, then EASE"

    def solve(self, totals: Mapping[str, Tensor], prior: AttributePrior = NO_PRIOR) -> Tensor:
        sketch = totals["sketch"].cpu().numpy()
        gram = symmetric_from(sketch, of_items(np.arange(len(sketch)), sketch.shape[1]))
        return without_diagonal(torch.from_numpy(gram).to(totals["sketch"]), self.reg, prior)


@dataclass(frozen=True)
class InverseWithoutDiagonal(Solve):
    """EASE's closed form."""

    reg: float
    label: str = "sum, then EASE"

    def solve(self, totals: Mapping[str, Tensor], prior: AttributePrior = NO_PRIOR) -> Tensor:
        return without_diagonal(totals["gram"], self.reg, prior)


@dataclass(frozen=True)
class OnNeighbours(Solve):
    """The regression behind EASE, of every item on some others."""

    reg: float
    neighbours: int = 0
    least_clients: int = 1
    label: str = "sum, then EASE on neighbours"

    def solve_sparse(self, totals: Mapping[str, Rows]) -> tuple[Tensor, Tensor]:
        gram = at_least(totals["gram"], self.least_clients)
        return solved(gram, of_upper(gram), len(gram.offsets) - 1, self.neighbours, self.reg)


def fedease(config: FedEASEConfig) -> ClosedForm:
    """Build FedEASE: own history × shared × pairs × EASE."""
    aggregate: InverseWithoutDiagonal | InverseOfSketched | OnNeighbours = InverseWithoutDiagonal(config.reg)
    if config.sketch:
        aggregate = InverseOfSketched(config.reg)
    elif config.neighbours:
        aggregate = OnNeighbours(config.reg, config.neighbours, config.least_clients)
    timing = Timing(config.decay_days) if config.decay_days else None
    label = "own history" if config.recency == 1 else "own history, by recency"
    return ClosedForm(
        name="fedease",
        paper="after Steck 2019",
        config=config,
        scorer=OwnHistory((config.recency,), timing, label),
        update=Sketch(config.sketch, config.newest) if config.sketch else Pairs(config.newest),
        aggregate=aggregate,
        timing=timing,
    )
