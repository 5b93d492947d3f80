"""FedFast: clients learn from the other clients of their cluster.

Muhammad et al., "FedFast: Going Beyond Average for Faster Training of Federated Recommender Systems"
(KDD 2020). `users` chooses between two forms. With `kept`, the default, user vectors stay on the device, and
later papers' settings hold: five clusters, all clients in every round.

    score(u, i) = ⟨p_u, q_i⟩        p_u personal
    local:      p_u and Q ← steps, as in FedMF
    server:     clusters of clients by k-means on their tables; Q_u ← mean of the tables of u's cluster

With `sent`, clients send their user vectors as well, as published:

    ActvSAMP:   clusters by k-means on user vectors; equally many clients of every cluster take part
    ActvAGG:    q_i ← Σ_k m_ki q_ki / Σ_k m_ki,  m_ki = ‖q_ki − q_i‖₁    over the clients k that moved row i
                p_k ← as sent by the clients that took part, the delegates; then clusters again
                p_s ← p_s + γ · mean change of the delegates in the cluster of s, for all others

Symbols: p is `clusters`, γ is `subordinate_rate`.

Chosen here, for `sent`: vectors of all users start alike, so that the first clusters say nothing; the paper
may also cluster by profiles. Clients are drawn from clusters of the vectors as they are after the last round.
γ falls by a tenth a round; the paper lets it fall too. The model is matrix factorization, so that the part of
ActvAGG for weights that are no embeddings, a weighted mean, is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from solera.core.context import RoundContext, Schedule, Scheduled
from solera.core.leaf import Home, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam, Aggregate
from solera.core.randomness import Purpose
from solera.core.upload import Sums, Totals, Upload
from solera.math.mixing import clusters
from solera.methods.parts import (
    BinaryCrossEntropy,
    Dot,
    FactorizationConfig,
    ItemTable,
    Joint,
    Mean,
    TablePerClient,
)


class FedFastConfig(FactorizationConfig):
    """Defaults: those of FedMF, and the number of clusters used in FedEM's comparison."""

    clusters: int = Field(default=5, ge=1, description="groups of clients that learn from one another")
    users: Literal["kept", "sent"] = Field(
        default="kept", description="whether user vectors stay on the device, or are sent as published"
    )
    subordinate_rate: Scheduled = Field(
        default=Schedule(start=1.0, decay=0.9),
        description="γ: how much of its cluster's change a user without training takes, if users are sent",
    )


@dataclass(frozen=True)
class ClusterMean(TablePerClient):
    """Give every client the mean table of its cluster, by k-means on the tables of the round."""

    clusters: int
    label: str = "mean of the cluster, a table per client"
    sketchable: bool = True

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """One over the size of the cluster for clients of the same cluster, zero for others."""
        labels = clusters(tables, self.clusters, context.generator(Purpose.CLIENTS, 2))
        together = (labels[:, None] == labels).to(torch.float64)
        return together / together.sum(1, keepdim=True)


@dataclass(frozen=True)
class SentUser(Dot):
    """⟨user, item⟩ with a user vector that the server knows."""

    label: str = "dot with user vector, which is sent"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The user vector, of which the server holds a version per client."""
        (user,) = super().leaves
        return (replace(user, home=Home.SHARED, upload=True),)


@dataclass(frozen=True)
class ActiveAggregation(Aggregate):
    """ActvAGG, and ActvSAMP to draw clients."""

    clusters: int
    label: str = "rows by how far they moved, users by cluster"
    held: str = "user"

    def draw(self, users: Tensor, count: int, context: RoundContext) -> Tensor:
        """Equally many clients of every cluster, as far as it has them."""
        if count == len(users):
            return torch.arange(count)
        generator = context.generator(Purpose.CLIENTS, 4)
        labels = clusters(users.unsqueeze(1), self.clusters, generator, by_length=True).cpu().numpy()
        members = [generator.permutation((labels == each).nonzero()[0]) for each in range(self.clusters)]
        in_turn = [client for client in chain(*zip_longest(*members)) if client is not None]
        return torch.tensor(in_turn[:count]).sort().values

    def sift(self, upload: Upload, weights: Tensor | None, totals: Totals) -> None:
        """Weigh every client's row by how far it moved."""
        moved = upload.changes["items"].double()
        far = moved.abs().sum(-1, keepdim=True)
        rows, place = torch.unique(upload.rows, return_inverse=True)
        added = moved.new_zeros(len(rows), moved.shape[1]).index_add_(0, place, far * moved)
        row_weights = far.new_zeros(len(rows), 1).index_add_(0, place, far).squeeze(1)
        users = upload.changes[self.held].double().sum(0)
        totals.merge(Sums(rows, row_weights, upload.n_clients, {"items": added, self.held: users}))

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        return Mean(by_row=True).combine(shared, totals, context)

    def pass_on(self, users: Tensor, clients: Tensor, changes: Tensor, context: RoundContext) -> Tensor:
        """Delegates have what they sent; all others take the mean change of their cluster's delegates."""
        after = users.index_add(0, clients, changes)
        if len(clients) == len(users):
            return after
        generator = context.generator(Purpose.CLIENTS, 5)
        labels = clusters(after.unsqueeze(1), self.clusters, generator, by_length=True)
        added = changes.new_zeros(self.clusters, changes.shape[1]).index_add_(0, labels[clients], changes)
        delegates = torch.bincount(labels[clients], minlength=self.clusters).clamp(min=1).to(added)
        passed = context.hyper["subordinate_rate"] * added / delegates.unsqueeze(1)
        took_part = torch.zeros(len(users), dtype=torch.bool, device=users.device).index_fill(
            0, clients, True
        )
        return torch.where(took_part.unsqueeze(1), after, after + passed[labels])


def fedfast(config: FedFastConfig) -> Method:
    """Build FedFast: dot × shared × joint × mean of the cluster, or active aggregation."""
    d, sent = config.embedding_size, config.users == "sent"
    return Method(
        name="fedfast",
        paper="Muhammad et al. 2020",
        config=config,
        scorer=SentUser(d) if sent else Dot(d),
        view=ItemTable(d),
        loss=BinaryCrossEntropy(),
        update=Joint(("user", "items"), Adam),
        aggregate=ActiveAggregation(config.clusters) if sent else ClusterMean(config.clusters),
    )
