"""FedEASE: EASE from one round, exactly.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data" (WWW 2019). All that EASE needs of the users is
the sum of their x_u x_uᵀ, where x_u marks the items of user u:

    client:     sends x_u x_uᵀ, ones at the pairs of its own items
    server:     P = (Σ_u x_u x_uᵀ + reg · I)⁻¹,   B = I − P · diag(1 / diag P)
    device:     score(i) = Σ_k recency^age(k) · B_ki over its own items k

With `recency` 1 every item of the history counts alike, as in EASE. Below 1 the latest count most; the device
knows its order, the server never does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field
from torch import Tensor

from solera.core.closed_form import Channels, ClosedForm, ClosedFormConfig, Contribution, Floats, Ints
from solera.core.linear import without_diagonal
from solera.core.parts import Plain


class FedEASEConfig(ClosedFormConfig):
    """Defaults: those of the centralized baseline."""

    reg: float = Field(
        500.0, gt=0, description="weight of ‖B‖², in interactions: larger trusts rare items less"
    )
    recency: float = Field(
        1.0, gt=0, le=1, description="weight of an item against that of the next newer one"
    )


@dataclass(frozen=True)
class Recency:
    """The own items, the latest most."""

    decay: float
    channels: int = 1

    @property
    def label(self) -> str:
        """Alike, or by recency."""
        return "own history" if self.decay == 1 else "own history, by recency"

    def weights(self, ages: Ints) -> Floats:
        """decay^age."""
        return np.power(self.decay, ages)[None]


@dataclass(frozen=True)
class Pairs:
    """Ones at the pairs of the own items."""

    label: str = "pairs of own items"
    sums: Mapping[str, Channels] = field(default_factory=lambda: {"gram": Channels(1, 1, symmetric=True)})

    def of(self, sequence: Ints) -> Contribution:
        """x xᵀ, in which an item that repeats counts once."""
        items = np.unique(sequence)
        return Contribution(items, {"gram": np.ones((1, len(items), 1, len(items)))})


@dataclass(frozen=True)
class InverseWithoutDiagonal:
    """EASE's closed form."""

    reg: float
    label: str = "sum, then EASE"

    def solve(self, totals: Mapping[str, Tensor]) -> Tensor:
        """B."""
        return without_diagonal(totals["gram"], self.reg)


def fedease(config: FedEASEConfig) -> ClosedForm:
    """own history × shared × pairs × EASE × plain."""
    return ClosedForm(
        name="fedease",
        paper="after Steck 2019",
        config=config,
        scorer=Recency(config.recency),
        update=Pairs(),
        aggregate=InverseWithoutDiagonal(config.reg),
        wire=Plain(),
    )
