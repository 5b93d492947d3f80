"""Popularity, and the counter: a control that learns nothing. It detects leaks in how negatives are drawn.

    score(u, i) = − how often i was drawn as a negative of u in `rounds` rounds

It sees no other user, no property of an item and none of the user's own items. Under an honest protocol it is
no better than chance. Where the held-out item is left out of the negatives, it is one of the few items that
were never drawn, and the counter finds it.

With `ties=popularity`, items that were drawn equally often are ranked by popularity, which sees other users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from solera.baselines.training import Baseline, Epoch, OnEpoch
from solera.core.frozen import Frozen
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData, sample


@dataclass(frozen=True, eq=False)
class Popularity(Baseline):
    """score(u, i) = number of users who have item i in their training data."""

    counts: Tensor

    @classmethod
    def fit(cls, split: Split) -> Popularity:
        """Count the users who have each item."""
        values = split.train.sorted_unique().values
        counts = np.bincount(values, minlength=split.data.n_items)
        return cls(torch.from_numpy(counts.astype(np.float32)))

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """Scores [len(users), n_items], the same for every user."""
        return self.counts.expand(len(users), -1)


class CounterConfig(Frozen):
    """Settings of the counter. Defaults: the rounds and negatives of the papers."""

    rounds: int = Field(default=100, ge=1, description="rounds whose draws are counted")

    negatives: int = Field(default=4, ge=1, description="negatives drawn per positive, anew every round")

    ties: Literal["none", "popularity"] = Field(
        default="none", description="how items that were drawn equally often are ranked"
    )


@dataclass(frozen=True, eq=False)
class Counter(Baseline):
    """score(u, i) = − how often i was drawn as a negative of u."""

    drawn: Tensor
    order: Tensor  # [n_items], from 0 to below 1

    @classmethod
    def fit(cls, split: Split, config: CounterConfig, seed: int, on_epoch: OnEpoch | None = None) -> Counter:
        """Draw what every method draws, and count."""
        clients = ClientData(split.train, split.excluded, split.data.n_items)
        users: Ints = np.flatnonzero(split.train.lengths)
        drawn = np.zeros((clients.n_clients, clients.n_items), dtype=np.int32)
        for round_ in range(config.rounds):
            negatives = sample(clients, users, config.negatives, seed, round_).negatives
            np.add.at(drawn.reshape(-1), users[negatives.rows] * clients.n_items + negatives.values, 1)
            if on_epoch:
                on_epoch(Epoch(round_ + 1, config.rounds, None))
        order = torch.zeros(clients.n_items)
        if config.ties == "popularity":
            counts = Popularity.fit(split).counts
            order = counts / (counts.max() + 1)
        return cls(torch.from_numpy(drawn), order)

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """Scores [len(users), n_items]."""
        return self.order - self.drawn[torch.from_numpy(users)]
