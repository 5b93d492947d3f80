"""SLIST: predicts the next items in closed form from fading memories of a history.

After the session-aware linear models of Choi et al. (WWW 2021), in the form of `fedslist`, whose centralized
twin this is: with equal options both have the same model. With the memories s_t and the next items y_t of all
histories (`math.next_items`),

    B = (S + ridge · mean diag(S) · I)⁻¹ T / (1 + n)^popularity_discount,   S = Σ s_t s_tᵀ, T = Σ s_t y_tᵀ
    score = s B with the memory s of the whole history

With `decay_days` memories fade by days instead of positions. With `source_attributes` and
`target_attributes` items with the same attributes have similar weights (`core.content`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from solera.baselines.training import Baseline
from solera.core.errors import DataError
from solera.core.types import Floats, Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged, ages, days_of_all, gaps
from solera.math.fading import Timing, fading
from solera.math.linear import memory_scores
from solera.math.next_items import NextItemOptions, next_item_weights

MAX_BYTES = 6 << 30  # of S, as in the federated form


class SLISTConfig(NextItemOptions):
    """Settings of SLIST: those of FedSLIST that change its model."""


@dataclass(frozen=True, eq=False)
class SLIST(Baseline):
    """A fitted SLIST: `weights` is B, [decays · n_items, n_items]."""

    weights: Tensor
    decays: tuple[float, ...]
    timing: Timing | None = None

    @property
    def reads_request_time(self) -> bool:
        """Whether scores depend on when they are asked for."""
        return self.timing is not None and self.timing.until_next

    @classmethod
    def fit(cls, split: Split, config: SLISTConfig | None = None) -> SLIST:
        """Solve for B on the training items."""
        config = config or SLISTConfig()
        decays, n_items = config.decays, split.data.n_items
        size = len(decays) * n_items
        if 8 * size**2 > MAX_BYTES:
            raise DataError(
                f"SLIST needs a matrix of {size:,} × {size:,} for {len(decays)} decays and the {n_items:,} "
                f"items of {split.data.name!r} (at most {MAX_BYTES / 2**30:.0f} GiB)",
                "give one decay, as in -o decays=0.8, or keep fewer items with a higher --min-interactions",
            )
        memories, following = np.zeros((size, size)), np.zeros((size, n_items))
        if config.timing:
            days_of_all(split.train)
        for user in np.flatnonzero(split.train.lengths):
            items = split.train.row(int(user))
            channels = np.concatenate([items + channel * n_items for channel in range(len(decays))])
            s, t = config.products(len(items), split.train.days_of(int(user)))
            _add(memories, channels, channels, s.reshape(len(channels), -1))
            _add(following, channels, items, t.reshape(len(channels), -1))
        both = torch.from_numpy(memories), torch.from_numpy(following)
        prior = config.prior(split.data.attributes)
        weights = next_item_weights(*both, config.ridge, config.popularity_discount, prior)
        return cls(weights.float().contiguous(), decays, config.timing)

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """s B with the memory s of each user's row of `history`."""
        return fading_scores(self.weights, history.take(users), self.decays, self.timing)


def _add(total: Floats, rows: Ints, columns: Ints, values: Floats) -> None:
    """Add values to places, of which some are the same if a history repeats an item."""
    place = np.ix_(rows, columns)
    if len(np.unique(columns)) == len(columns):
        total[place] += values  # several times as fast
    else:
        np.add.at(total, place, values)


def fading_scores(
    weights: Tensor, histories: Ragged, decays: tuple[float, ...], timing: Timing | None
) -> Tensor:
    """Scores by memories: decay^age of every item, added up for repeated ones."""
    memory = fading(decays, ages(histories), gaps(histories) if timing else None, timing)
    return memory_scores(weights, histories.offsets, histories.values, memory)
