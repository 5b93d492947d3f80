"""CentRAP: FedRAP trained centrally, which its authors use as an upper bound for FedRAP.

Li et al., "Federated Recommendation with Additive Personalization" (ICLR 2024), which mentions it in one
sentence of Section 4.2; the public code does not contain it. FedRAP itself is the method `fedrap`.

    score(u, i) = ⟨w_u, c_i + d_ui⟩ + b_u
    loss        = binary cross-entropy − λ · (d_ui − c_i)² + μ · |c_i| + reg · (‖w_u‖² + ‖c_i‖² + ‖d_ui‖²)

The loss is a mean over the samples (u, i); the terms of λ and μ are also means over the d coordinates.

"Centralized" means that there are no clients, rounds or averages. All users' samples are shuffled together,
and the shared table C is updated on every mini-batch. The parts that are personal in FedRAP, the scorer w_u,
b_u and the table D_u, still exist once per user, but are stored beside C. Everything is trained with Adam; of
D, only the rows in a batch. D starts at zero. λ and μ are fixed, without a curriculum.

d_ui belongs to one user *and* one item. For an item that the user has not met, it can only learn how
often the item was drawn as a negative. Under `strict` that is noise, and a larger `own_learning_rate` makes
the model worse. Under `paper`, where the held-out items are never drawn, it is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding

from solera.baselines.training import Baseline, Draws, OnEpoch, TrainedConfig, normal, refresh, train
from solera.core.errors import DataError
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged

MAX_BYTES = 2_000_000_000  # for D; Adam needs twice as much in addition


class CentRAPConfig(TrainedConfig):
    """Settings of CentRAP."""

    epochs: int = Field(default=50, ge=1, description="passes over everybody's training items")
    own_learning_rate: float = Field(default=1e-4, gt=0, description="step size of D")
    independence: float = Field(default=1e-3, ge=0, description="λ, FedRAP's v1: weight of −(D − C)²")
    sparsity: float = Field(default=1e-3, ge=0, description="μ, FedRAP's v2: weight of |C|")


@dataclass(frozen=True, eq=False)
class CentRAP(Baseline):
    """A fitted CentRAP: W [n_users, d], b [n_users], C [n_items, d] and D [n_users · n_items, d]."""

    refreshes = "users' parameters refreshed in {epochs} epochs"

    weights: Tensor
    biases: Tensor
    shared: Tensor
    own: Tensor
    config: CentRAPConfig
    seed: int

    @classmethod
    def fit(
        cls, split: Split, config: CentRAPConfig | None = None, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> CentRAP:
        """Train all parameters together."""
        config = config or CentRAPConfig()
        n_users, n_items, d = split.data.n_users, split.data.n_items, config.embedding_size
        _check_size(split, d)
        weights, biases = normal(seed, "weights", n_users, d), torch.zeros(n_users, 1, requires_grad=True)
        shared = normal(seed, "shared", n_items, d)
        own = torch.zeros(n_users * n_items, d, requires_grad=True)

        def loss(u: Tensor, i: Tensor, labels: Tensor) -> Tensor:
            w, b, c = embedding(u, weights), embedding(u, biases).squeeze(-1), embedding(i, shared)
            d = embedding(u * n_items + i, own, sparse=True)
            entropy = binary_cross_entropy_with_logits((w * (c + d)).sum(-1) + b, labels)
            apart, sparse = (d - c).square().mean(), c.abs().mean()
            size = (w.square() + c.square() + d.square()).sum(-1).mean()
            return entropy - config.independence * apart + config.sparsity * sparse + config.reg * size

        optimizers = [
            torch.optim.Adam([weights, biases, shared], config.learning_rate, fused=True),
            torch.optim.SparseAdam([own], config.own_learning_rate),
        ]
        train(loss, Draws(split, config.negatives, seed).labelled, optimizers, config, on_epoch)
        return cls(weights.detach(), biases.detach().squeeze(-1), shared.detach(), own.detach(), config, seed)

    def refreshed(self, split: Split, epochs: int) -> CentRAP:
        """Train every w_u and b_u on for the training items of a split, with C and D fixed."""
        config, n_items = self.config, len(self.shared)
        weights = self.weights.clone().requires_grad_()
        biases = self.biases.unsqueeze(-1).clone().requires_grad_()

        def loss(u: Tensor, i: Tensor, labels: Tensor) -> Tensor:
            w, b = embedding(u, weights), embedding(u, biases).squeeze(-1)
            seen = embedding(i, self.shared) + embedding(u * n_items + i, self.own)
            size = w.square().sum(-1).mean()
            return binary_cross_entropy_with_logits((w * seen).sum(-1) + b, labels) + config.reg * size

        draw = Draws(split, config.negatives, self.seed).labelled
        refresh(loss, draw, [weights, biases], config, epochs)
        return replace(self, weights=weights.detach(), biases=biases.detach().squeeze(-1))

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """⟨w_u, c_i + d_ui⟩ + b_u for all items."""
        n_items = len(self.shared)
        rows = []
        for user in users.tolist():  # one by one, because the tables of many users are a large copy
            own = self.own[user * n_items : (user + 1) * n_items]
            rows.append((self.shared + own) @ self.weights[user] + self.biases[user])
        return torch.stack(rows)


def _check_size(split: Split, embedding_size: int) -> None:
    data = split.data
    needed = 4 * data.n_users * data.n_items * embedding_size
    if needed > MAX_BYTES:
        fits = MAX_BYTES // (4 * data.n_users * data.n_items)
        smaller = f"-o embedding_size={fits} fits; or " if fits else ""
        raise DataError(
            f"CentRAP keeps a vector for every pair of user and item: {needed / 1e9:,.1f} GB for "
            f"{data.name!r} with embedding_size {embedding_size} (at most {MAX_BYTES / 1e9:.0f} GB)",
            f"{smaller}keep fewer users with a higher --min-interactions",
        )
