"""EASE: a linear item-to-item model in closed form, an upper reference for methods that ignore item order.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019. With the binary user-item matrix
X, it minimises ‖X − XB‖² + reg·‖B‖² over B with a zero diagonal:

    P = (XᵀX + reg·I)⁻¹,    B = I − P · diag(1 / diag(P)),    score(u, ·) = x_u B

With `recency` below 1, an item of the history counts recency^age instead of 1 when items are scored, as in
`fedease`. The newest item has age 0. With `decay_days` it counts recency^(days since / decay_days) instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from solera.baselines.slist import fading_scores
from solera.baselines.training import Baseline
from solera.core.content import AttributeOptions
from solera.core.errors import DataError
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged
from solera.math.fading import Timing
from solera.math.linear import without_diagonal

MAX_ITEMS = 20_000  # here, items² doubles take 3.2 GB, and the inverse needs several of them


class EaseConfig(AttributeOptions):
    """Settings of EASE."""

    reg: float = Field(
        default=500.0,
        gt=0,
        description="weight of ‖B‖², in units of interactions: larger trusts rare items less",
    )

    recency: float = Field(
        default=1.0, gt=0, le=1, description="weight of an item against that of the next newer one"
    )

    decay_days: float = Field(
        default=0.0,
        ge=0,
        description="days of a step of recency, by the times of items; 0: a step is a position",
    )


@dataclass(frozen=True, eq=False)
class Ease(Baseline):
    """A fitted EASE: `weights` is B, [n_items, n_items]."""

    weights: Tensor
    recency: float = 1.0
    timing: Timing | None = None

    @classmethod
    def fit(cls, split: Split, config: EaseConfig | None = None) -> Ease:
        """Solve for B on the training items."""
        n_items = split.data.n_items
        if n_items > MAX_ITEMS:
            raise DataError(
                f"EASE needs a matrix of items × items, too large for the {n_items:,} items of "
                f"{split.data.name!r} (at most {MAX_ITEMS:,})",
                "use popularity here, or keep fewer items with a higher --min-interactions",
            )
        config = config or EaseConfig()
        gram = _gram(split.train.sorted_unique(), n_items)
        timing = Timing(config.decay_days) if config.decay_days else None
        prior = config.prior(split.data.attributes)
        return cls(without_diagonal(gram, config.reg, prior).float(), config.recency, timing)

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """x_u B, where x_u has the items in the user's row of `history` (one row per user of the data)."""
        known = history.take(users)
        if self.recency == 1:  # a repeated item counts once
            return fading_scores(self.weights, known.sorted_unique(), (1.0,), None)
        return fading_scores(self.weights, known, (self.recency,), self.timing)


def _gram(train: Ragged, n_items: int) -> Tensor:
    """XᵀX of the lists as rows of zeros and ones, in double precision."""
    gram = np.zeros((n_items, n_items))
    for user in range(len(train)):
        items = train.row(user)
        gram[np.ix_(items, items)] += 1
    return torch.from_numpy(gram)
