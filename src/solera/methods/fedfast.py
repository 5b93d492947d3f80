"""FedFast: clients learn from the other clients of their cluster.

Muhammad et al., "FedFast: Going Beyond Average for Faster Training of Federated Recommender Systems"
(KDD 2020), in the form that later papers compare with: five clusters, all clients in every round.

    score(u, i) = ⟨p_u, q_i⟩        p_u personal
    local:      p_u and Q ← steps, as in FedMF
    server:     clusters of clients by k-means; Q_u ← mean of the tables of u's cluster

Symbols: p is `clusters`.

The parts of the original that need user vectors on the server are replaced or left out:
- Clients are clustered by the item tables they sent, not by user vectors or profiles.
- ActvAGG passes the mean change of the user vectors in a cluster on to its clients that did not
  train. Here user vectors stay on the device, and a cluster shares its item table. A client
  that does not take part in a round keeps the table it had.
- In ActvAGG everybody has the same item table, and clients are weighted row by row by how far they moved it.
  Here all clients of a cluster have the same weight.
- ActvSAMP draws equally many clients from every cluster. Left out: `clients_per_round` draws uniformly.
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
from solera.core.randomness import Purpose
from solera.core.schedule import Schedule, Scheduled
from solera.core.similarity import clusters
from solera.core.spec import Params
from solera.core.upload import Totals


class FedFastConfig(MethodConfig):
    """Defaults: those of FedMF, and the number of clusters used in FedEM's comparison."""

    embedding_size: int = Field(default=16, ge=1, description="length of user and item vectors")
    learning_rate: Scheduled = Field(
        default=Schedule(start=0.01), description="step size of user and item vectors"
    )
    local_epochs: int = Field(default=10, ge=1, description="passes over a client's own data per round")
    clusters: int = Field(default=5, ge=1, description="groups of clients that share a table")


@dataclass(frozen=True)
class ClusterMean:
    """Give every client the mean table of its cluster, by k-means on the tables of the round."""

    clusters: int
    label: str = "mean of the cluster, a table per client"
    weighted: bool = False
    source: str = "items"
    target: str = "items"
    sketchable: bool = True

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """One over the size of the cluster for clients of the same cluster, zero for others."""
        labels = clusters(tables, self.clusters, context.generator(Purpose.CLIENTS, 2))
        together = (labels[:, None] == labels).to(torch.float64)
        return together / together.sum(1, keepdim=True)

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """Average the leaves of which clients have no version of their own."""
        return Mean().combine(shared, totals, context)


def fedfast(config: FedFastConfig) -> Method:
    """Build FedFast: dot × shared × joint × mean of the cluster."""
    return Method(
        name="fedfast",
        paper="Muhammad et al. 2020",
        config=config,
        scorer=Dot(config.embedding_size),
        view=ItemTable(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=Joint(("user", "items"), Adam),
        aggregate=ClusterMean(config.clusters),
    )
