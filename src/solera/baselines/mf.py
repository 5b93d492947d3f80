"""MF: matrix factorization on implicit feedback, with one vector per user and per item.

Koren, Bell & Volinsky, "Matrix Factorization Techniques for Recommender Systems" (Computer 2009), with the
loss and the sampled negatives of He et al., "Neural Collaborative Filtering" (WWW 2017). Federated papers
compare with this form; `fedmf` is its federated counterpart.

    score(u, i) = ⟨p_u, q_i⟩
    loss        = binary cross-entropy + reg · (‖p_u‖² + ‖q_i‖²)         mean over the samples (u, i)

A user's vector comes from training alone: unlike EASE, MF does not read a history. To use newer items, the
vector is trained on with Q fixed (`refreshed`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding

from solera.baselines.training import Baseline, Draws, OnEpoch, TrainedConfig, normal, refresh, train
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged


class MFConfig(TrainedConfig):
    """Settings of MF."""


@dataclass(frozen=True, eq=False)
class MF(Baseline):
    """A fitted factorization: `users` is P, [n_users, d], and `items` is Q, [n_items, d]."""

    refreshes = "users' parameters refreshed in {epochs} epochs"

    users: Tensor
    items: Tensor
    config: MFConfig
    seed: int

    @classmethod
    def fit(
        cls, split: Split, config: MFConfig | None = None, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> MF:
        """Train P and Q together."""
        config = config or MFConfig()
        users = normal(seed, "users", split.data.n_users, config.embedding_size)
        items = normal(seed, "items", split.data.n_items, config.embedding_size)
        model = cls(users, items, config, seed)
        optimizer = torch.optim.Adam([users, items], config.learning_rate, fused=True)
        train(model._loss, Draws(split, config.negatives, seed).labelled, [optimizer], config, on_epoch)
        return cls(users.detach(), items.detach(), config, seed)

    def refreshed(self, split: Split, epochs: int) -> MF:
        """Train P on for the training items of a split, with Q fixed."""
        config, seed = self.config, self.seed
        users = self.users.clone().requires_grad_()
        loss = MF(users, self.items, config, seed)._loss
        refresh(loss, Draws(split, config.negatives, seed).labelled, [users], config, epochs)
        return MF(users.detach(), self.items, config, seed)

    def _loss(self, u: Tensor, i: Tensor, labels: Tensor) -> Tensor:
        p, q = embedding(u, self.users), embedding(i, self.items)
        size = p.square().sum(-1) + q.square().sum(-1)
        return binary_cross_entropy_with_logits((p * q).sum(-1), labels) + self.config.reg * size.mean()

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """⟨p_u, q_i⟩ for all items."""
        return self.users[torch.from_numpy(users)] @ self.items.T
