"""MF: matrix factorization on implicit feedback, with one vector per user and per item.

Koren, Bell & Volinsky, "Matrix Factorization Techniques for Recommender Systems" (Computer 2009), with the
loss and the sampled negatives of He et al., "Neural Collaborative Filtering" (WWW 2017). Federated papers
compare with this form; `fedmf` is its federated counterpart.

    score(u, i) = ⟨p_u, q_i⟩
    loss        = binary cross-entropy + reg · (‖p_u‖² + ‖q_i‖²)         mean over the samples (u, i)

A user's vector comes from training alone: unlike EASE, MF does not see the validation item at test time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding

from solera.baselines.training import Draws, OnEpoch, TrainedConfig, normal, train
from solera.core.arrays import Ints
from solera.data.ragged import Ragged
from solera.data.split import Split


class MFConfig(TrainedConfig):
    """Settings of MF."""


class MF:
    """A fitted factorization: `users` is P, [n_users, d], and `items` is Q, [n_items, d]."""

    def __init__(self, users: Tensor, items: Tensor) -> None:
        self.users = users
        self.items = items

    @classmethod
    def fit(
        cls, split: Split, config: MFConfig | None = None, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> MF:
        """Train P and Q together."""
        config = config or MFConfig()
        users = normal(seed, "users", split.data.n_users, config.embedding_size)
        items = normal(seed, "items", split.data.n_items, config.embedding_size)

        def loss(u: Tensor, i: Tensor, labels: Tensor) -> Tensor:
            p, q = embedding(u, users), embedding(i, items)
            size = p.square().sum(-1) + q.square().sum(-1)
            return binary_cross_entropy_with_logits((p * q).sum(-1), labels) + config.reg * size.mean()

        optimizer = torch.optim.Adam([users, items], config.learning_rate, fused=True)
        train(loss, Draws(split, config.negatives, seed).labelled, [optimizer], config, on_epoch)
        return cls(users.detach(), items.detach())

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """⟨p_u, q_i⟩ for all items."""
        return self.users[torch.from_numpy(users)] @ self.items.T
