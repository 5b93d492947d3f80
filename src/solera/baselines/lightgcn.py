"""LightGCN: embeddings smoothed over the user-item graph.

He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation" (SIGIR 2020).
Users and items are the nodes, training interactions the edges; E⁰ holds a vector for every node.

    E^{k+1} = Â E^k,   Â = D^{−1/2} A D^{−1/2},   E = (E⁰ + … + E^K) / (K + 1)                     (Eq. 7, 8)
    score(u, i) = ⟨e_u, e_i⟩                                                                         (Eq. 5)
    loss        = −log σ(score(u, i) − score(u, j)) + reg · (‖e⁰_u‖² + ‖e⁰_i‖² + ‖e⁰_j‖²) / 2       (Eq. 15)

The loss is a mean over pairs of a positive i and a negative j. As in the authors' code, the penalty applies
to the vectors of the batch. Only E⁰ is trained, with Adam, with larger steps and fewer epochs than the
authors use. A user's vector comes from training, as in `mf`, and from the graph: newer items are edges of a
graph on which the same E⁰ spreads again.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import embedding, logsigmoid

from solera.baselines.training import Baseline, Draws, OnEpoch, TrainedConfig, normal, train
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged


class LightGCNConfig(TrainedConfig):
    """Settings of LightGCN."""

    layers: int = Field(
        default=3, ge=0, description="K: how far a vector spreads; with 0, this is MF with a pairwise loss"
    )
    learning_rate: float = Field(default=0.05, gt=0, description="step size of Adam")
    reg: float = Field(
        default=0.001,
        ge=0,
        description="weight of half the squared length of the vectors of a pair, before they spread",
    )
    negatives: int = Field(default=1, ge=1, description="negatives drawn per positive, anew every epoch")


class LightGCN(Baseline):
    """A fitted LightGCN: E⁰ as `nodes`, and E as `users`, [n_users, d], and `items`, [n_items, d]."""

    refreshes = "added to the graph"

    def __init__(self, nodes: Tensor, graph: Tensor, n_users: int, layers: int) -> None:
        self.nodes = nodes
        self.layers = layers
        self.users, self.items = propagate(graph, nodes, layers).tensor_split([n_users])

    @classmethod
    def fit(
        cls,
        split: Split,
        config: LightGCNConfig | None = None,
        seed: int = 0,
        on_epoch: OnEpoch | None = None,
    ) -> LightGCN:
        """Train E⁰."""
        config = config or LightGCNConfig()
        n_users, n_items = split.data.n_users, split.data.n_items
        graph = adjacency(split.train, n_items)
        start = normal(seed, "nodes", n_users + n_items, config.embedding_size)

        def loss(u: Tensor, i: Tensor, j: Tensor) -> Tensor:
            nodes = torch.stack([u, i + n_users, j + n_users])
            user, positive, negative = embedding(nodes, propagate(graph, start, config.layers))
            size = embedding(nodes, start).square().sum((0, 2))
            return (config.reg / 2 * size - logsigmoid((user * (positive - negative)).sum(-1))).mean()

        optimizer = torch.optim.Adam([start], config.learning_rate, fused=True)
        train(loss, Draws(split, config.negatives, seed).pairs, [optimizer], config, on_epoch)
        return cls(start.detach(), graph, n_users, config.layers)

    def refreshed(self, split: Split, epochs: int = 0) -> LightGCN:
        """The same E⁰, spread over the training items of a split."""
        graph = adjacency(split.train, split.data.n_items)
        return LightGCN(self.nodes, graph, split.data.n_users, self.layers)

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """⟨e_u, e_i⟩ for all items."""
        return self.users[torch.from_numpy(users)] @ self.items.T


def adjacency(train: Ragged, n_items: int) -> Tensor:
    """Â as a sparse matrix, users before items. Repeated edges count once; isolated nodes are zero rows."""
    edges = train.sorted_unique()
    n_nodes = len(edges) + n_items
    users, items = torch.from_numpy(edges.rows), torch.from_numpy(edges.values) + len(edges)
    ends = torch.stack([torch.cat([users, items]), torch.cat([items, users])])
    degree = torch.bincount(ends[0], minlength=n_nodes).float()
    weights = degree[ends].prod(0).rsqrt()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_coo_tensor(
            ends, weights, (n_nodes, n_nodes), check_invariants=True
        ).to_sparse_csr()


def propagate(graph: Tensor, start: Tensor, layers: int) -> Tensor:
    """(E⁰ + ÂE⁰ + … + Â^K E⁰) / (K + 1)."""
    total = layer = start
    for _ in range(layers):
        layer = _Spread.apply(graph, layer)  # type: ignore[no-untyped-call]
        total = total + layer
    return total / (layers + 1)


class _Spread(torch.autograd.Function):
    """Â E with a fast gradient. Â is symmetric, but torch does not know it and would be ten times slower."""

    @staticmethod
    def forward(context: Any, graph: Tensor, vectors: Tensor) -> Tensor:
        context.graph = graph
        return graph @ vectors

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, context.graph @ gradients[0]
