"""PerFedRec: mixes the global model, the cluster's model and the client's own.

Luo, Xiao & Song, "Personalized Federated Recommendation via Joint Representation Learning, User Clustering,
and Model Adaptation" (CIKM 2022).

    score(u, i) = ⟨p_u, q_ui⟩       p_u personal
    local:      p_u and Q_u ← steps, as in FedMF
    server:     Q_global = mean of all Q_v,  Q_cluster = mean of those of u's cluster
                Q_u ← α_1 Q_u + α_2 Q_cluster + α_3 Q_global
    served:     with that mixture

Symbols: α_1, α_2, α_3 are `own`, `cluster` and `everybody`, divided by their sum; K is `clusters`. The public
code takes the mean of the three models' scores. For models that share a user vector, this is the score of the
mean table.

Differences from the original:
- It has a graph network on the device and attributes of users and items. Here the model is matrix
  factorization.
- Clients are clustered by the item tables they sent. In the original, clients send user vectors for that;
  here these stay on the device.
- The original draws half of a round's clients by the size of their cluster and adds noise to the item
  vectors; here neither is done.
- In the public code a client's training starts from the model of its cluster; here from the mixture.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from solera.core.choices import Adam
from solera.core.context import MethodConfig, RoundContext
from solera.core.losses import BinaryCrossEntropy
from solera.core.method import Method
from solera.core.parts import Dot, ItemTable, Joint, Mean
from solera.core.schedule import Schedule, Scheduled
from solera.core.spec import Params
from solera.core.upload import Totals
from solera.methods.fedfast import ClusterMean


class PerFedRecConfig(MethodConfig):
    """Defaults: those of FedMF; five clusters and equal shares, as in the public code."""

    embedding_size: int = Field(default=16, ge=1, description="length of user and item vectors")
    learning_rate: Scheduled = Field(
        default=Schedule(start=0.01), description="step size of user and item vectors"
    )
    local_epochs: int = Field(default=10, ge=1, description="passes over a client's own data per round")
    clusters: int = Field(default=5, ge=1, description="K, groups of clients")
    own: float = Field(default=1.0, ge=0, description="α_1, weight of the client's own table")
    cluster: float = Field(default=1.0, ge=0, description="α_2, weight of the cluster's table")
    everybody: float = Field(default=1.0, gt=0, description="α_3, weight of the table of all")


@dataclass(frozen=True)
class ThreeLevels:
    """Mix every client's table from its own, its cluster's and the global table."""

    own: float
    cluster: float
    everybody: float
    clusters: ClusterMean
    label: str = "own, cluster's and mean, a table per client"
    weighted: bool = False
    source: str = "items"
    target: str = "items"
    sketchable: bool = True

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """α_1 · identity + α_2 · the clusters' mixing + α_3 · one over the number of clients."""
        mixing = self.cluster * self.clusters.mixing(tables, weights, context)
        mixing += self.everybody / len(tables)
        mixing += self.own * torch.eye(len(tables), dtype=mixing.dtype, device=mixing.device)
        return mixing / (self.own + self.cluster + self.everybody)

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """Average the leaves of which clients have no version of their own."""
        return Mean().combine(shared, totals, context)


def perfedrec(config: PerFedRecConfig) -> Method:
    """Build PerFedRec: dot × shared × joint × three levels."""
    return Method(
        name="perfedrec",
        paper="Luo et al. 2022",
        config=config,
        scorer=Dot(config.embedding_size),
        view=ItemTable(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=Joint(("user", "items"), Adam),
        aggregate=ThreeLevels(config.own, config.cluster, config.everybody, ClusterMean(config.clusters)),
    )
