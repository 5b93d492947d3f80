"""NCF: neural collaborative filtering, a perceptron on the vectors of user and item.

He et al., "Neural Collaborative Filtering" (WWW 2017), in its MLP form; `fedncf` is its federated
counterpart.

    score(u, i) = w · φ(W_L … φ(W_1 [p_u ; q_i] + b_1) … + b_L) + b        φ(x) = max(x, 0)
    loss        = binary cross-entropy + reg · (‖p_u‖² + ‖q_i‖²)           mean over the samples (u, i)

Left out: the generalized matrix factorization branch, and pre-training. A user's vector comes from training
alone and can be refreshed, as in `mf`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding, linear, relu

from solera.baselines.training import Baseline, Draws, OnEpoch, TrainedConfig, normal, refresh, train, uniform
from solera.core.context import Widths
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged

CHUNK = 1_000_000  # scores computed at once; the first layer holds this many times its width


class NCFConfig(TrainedConfig):
    """Settings of NCF. It peaks early, and regularization does not change that; hence the defaults."""

    epochs: int = Field(default=20, ge=1, description="passes over everybody's training items")
    reg: float = Field(
        default=0.0, ge=0, description="weight of the squared length of the vectors of a sample"
    )
    hidden: Annotated[Widths, Field(min_length=1)] = Field(
        default=(32, 16, 8), description="widths of the hidden layers; -o hidden=32,16,8 on the command line"
    )


@dataclass(frozen=True, eq=False)
class NCF(Baseline):
    """A fitted NCF: user and item vectors, and weight and bias of every layer."""

    refreshes = "users' parameters refreshed in {epochs} epochs"

    users: Tensor
    items: Tensor
    layers: list[tuple[Tensor, Tensor]]
    config: NCFConfig
    seed: int

    @classmethod
    def fit(
        cls, split: Split, config: NCFConfig | None = None, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> NCF:
        """Train vectors and perceptron together."""
        config = config or NCFConfig()
        d = config.embedding_size
        model = cls(
            normal(seed, "users", split.data.n_users, d),
            normal(seed, "items", split.data.n_items, d),
            [
                (uniform(seed, f"weight {n}", out, into, bound=1 / math.sqrt(into)), _zeros(out))
                for n, (into, out) in enumerate(pairwise((2 * d, *config.hidden, 1)))
            ],
            config,
            seed,
        )
        parameters = [model.users, model.items, *(tensor for layer in model.layers for tensor in layer)]

        optimizer = torch.optim.Adam(parameters, config.learning_rate, fused=True)
        train(model._loss, Draws(split, config.negatives, seed).labelled, [optimizer], config, on_epoch)
        for parameter in parameters:
            parameter.requires_grad_(False)
        return model

    def refreshed(self, split: Split, epochs: int) -> NCF:
        """Train users' vectors on for the training items of a split, with all else fixed."""
        config, seed = self.config, self.seed
        users = self.users.clone().requires_grad_()
        model = NCF(users, self.items, self.layers, config, seed)
        refresh(model._loss, Draws(split, config.negatives, seed).labelled, [users], config, epochs)
        users.requires_grad_(False)
        return model

    def _loss(self, u: Tensor, i: Tensor, labels: Tensor) -> Tensor:
        p, q = embedding(u, self.users), embedding(i, self.items)
        size = p.square().sum(-1) + q.square().sum(-1)
        return binary_cross_entropy_with_logits(self.score(p, q), labels) + self.config.reg * size.mean()

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """The perceptron's output for broadcastable vectors [..., d]. W_1 is applied in two halves."""
        (weight, bias), *others = self.layers
        for_users, for_items = weight.chunk(2, dim=1)
        x = linear(users, for_users, bias) + linear(items, for_items)
        for weight, bias in others:
            x = linear(relu(x), weight, bias)
        return x.squeeze(-1)

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """The perceptron's output for all items."""
        chosen = self.users[torch.from_numpy(users)].unsqueeze(1)
        size = max(1, CHUNK // len(self.items))
        return torch.cat([self.score(some, self.items) for some in torch.split(chosen, size)])


def _zeros(size: int) -> Tensor:
    return torch.zeros(size, requires_grad=True)
