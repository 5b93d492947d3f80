"""The most popular items, the same for everybody: what any other method has to beat."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.data.ragged import Ragged
from solera.data.split import Split


class Popularity:
    """score(u, i) = number of users who have item i in their training data."""

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts

    @classmethod
    def fit(cls, split: Split) -> Popularity:
        """Count the users of every item."""
        values = split.train.sorted_unique().values
        counts = np.bincount(values, minlength=split.data.n_items)
        return cls(torch.from_numpy(counts.astype(np.float32)))

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """[len(users), n_items], every row the same."""
        return self.counts.expand(len(users), -1)
