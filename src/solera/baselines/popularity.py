"""The most popular items, the same for everybody: the baseline that every other method should beat."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged


class Popularity:
    """score(u, i) = number of users who have item i in their training data."""

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts

    @classmethod
    def fit(cls, split: Split) -> Popularity:
        """Count the users who have each item."""
        values = split.train.sorted_unique().values
        counts = np.bincount(values, minlength=split.data.n_items)
        return cls(torch.from_numpy(counts.astype(np.float32)))

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """Scores [len(users), n_items], the same for every user."""
        return self.counts.expand(len(users), -1)
