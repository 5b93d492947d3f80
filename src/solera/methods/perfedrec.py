"""PerFedRec: a graph network on the device; mixes the global model, the cluster's model and the client's own.

Luo, Xiao & Song, "Personalized Federated Recommendation via Joint Representation Learning, User Clustering,
and Model Adaptation" (CIKM 2022).

    score(u, i) = ⟨e_u, q_ui⟩       p_u personal
    device:     e_u = (⌈(L+1)/2⌉ p_u + ⌊(L+1)/2⌋ g_u) / (L+1),   g_u = Σ q_uk / √|N_u| over own items k
    local:      p_u and Q_u ← steps, as in FedMF
    server:     Q_global = mean of all Q_v,  Q_cluster = mean of those of u's cluster
                Q_u ← α_1 Q_u + α_2 Q_cluster + α_3 Q_global
    served:     with that mixture

e_u is a light graph convolution of L layers (He et al. 2020) on the graph that a device has: its user, linked
to its items, which have no other links. Layers 0, 2, … of the user are p_u there, layers 1, 3, … are g_u, and
their mean is e_u. g_u is computed at the start of a round and stays on the device, which sends changes of
rows and nothing else, as without the convolution. L = 0 is matrix factorization.

Symbols: L is `layers`; α_1, α_2, α_3 are `own`, `cluster` and `everybody`, divided by their sum; K is
`clusters`. The public code takes the mean of the three models' scores. For models that share a user vector,
this is the score of the mean table.

Differences from the original:
- Its convolution also changes the vectors of the user's own items, all by the same amount. Other items have
  no links on the device, and only these are ranked, so that part is left out. Gradients do not pass g_u.
- Its public code links items to all their users, whose vectors then reach the device, and repeats the first
  layer instead of going on from it. Its graph network also has attributes of users and items.
- Clients are clustered by the item tables they sent. In the original, clients send user vectors for that;
  here these stay on the device.
- The original draws half of a round's clients by the size of their cluster and adds noise to the item
  vectors; here neither is done.
- In the public code a client's training starts from the model of its cluster; here from the mixture.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from solera.core.context import RoundContext
from solera.core.leaf import Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam
from solera.methods.fedfast import ClusterMean
from solera.methods.parts import (
    BinaryCrossEntropy,
    Dot,
    FactorizationConfig,
    ItemTable,
    Joint,
    TablePerClient,
)


class PerFedRecConfig(FactorizationConfig):
    """Defaults: those of FedMF; five clusters and equal shares, as in the public code."""

    layers: int = Field(
        default=1, ge=0, description="L, of the graph convolution on the device; 0 leaves it out"
    )
    clusters: int = Field(default=5, ge=1, description="K, groups of clients")
    own: float = Field(default=1.0, ge=0, description="α_1, weight of the client's own table")
    cluster: float = Field(default=1.0, ge=0, description="α_2, weight of the cluster's table")
    everybody: float = Field(default=1.0, gt=0, description="α_3, weight of the table of all")


@dataclass(frozen=True)
class ConvolvedDot(Dot):
    """⟨e, item⟩ with a user vector and the sum of the own items' vectors, convolved."""

    layers: int = 1
    label: str = "dot with convolved user vector"
    gathers: str = "neighbours"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        neighbours = Leaf(self.gathers, (self.embedding_size,), Home.PERSONAL, Init.ZEROS)
        return (*super().leaves, neighbours)

    def gather(self, rows: Tensor, counts: Tensor) -> Tensor:
        """g, the sum of the rows over the square root of their number."""
        owner = torch.arange(len(counts), device=rows.device).repeat_interleave(counts)
        added = rows.new_zeros(len(counts), rows.shape[1]).index_add_(0, owner, rows)
        return added / counts.clamp(min=1).to(rows).sqrt().unsqueeze(1)

    def score(self, params: Params, items: Tensor) -> Tensor:
        return super().score(self._convolved(params), items)

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        """That of the dot, times the share of p in e."""
        found = super().gradient(params, items, slope, wanted)
        return {name: value * (1 - self._share) for name, value in found.items()}

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        return super().item_gradient(self._convolved(params), slope)

    @property
    def _share(self) -> float:
        """The share of g in e."""
        return (self.layers + 1) // 2 / (self.layers + 1)

    def _convolved(self, params: Params) -> Params:
        user, neighbours = params["user"], params[self.gathers]
        return params | {"user": user + self._share * (neighbours - user)}


@dataclass(frozen=True)
class ThreeLevels(TablePerClient):
    """Mix every client's table from its own, its cluster's and the global table."""

    own: float
    cluster: float
    everybody: float
    clusters: ClusterMean
    label: str = "own, cluster's and mean, a table per client"
    sketchable: bool = True

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """α_1 · identity + α_2 · the clusters' mixing + α_3 · one over the number of clients."""
        mixing = self.cluster * self.clusters.mixing(tables, weights, context)
        mixing += self.everybody / len(tables)
        mixing += self.own * torch.eye(len(tables), dtype=mixing.dtype, device=mixing.device)
        return mixing / (self.own + self.cluster + self.everybody)


def perfedrec(config: PerFedRecConfig) -> Method:
    """Build PerFedRec: convolved dot × shared × joint × three levels."""
    d = config.embedding_size
    return Method(
        name="perfedrec",
        paper="Luo et al. 2022",
        config=config,
        scorer=ConvolvedDot(d, layers=config.layers) if config.layers else Dot(d),
        view=ItemTable(d),
        loss=BinaryCrossEntropy(),
        update=Joint(("user", "items"), Adam),
        aggregate=ThreeLevels(config.own, config.cluster, config.everybody, ClusterMean(config.clusters)),
    )
