"""FedEM: elastic merging, and a personalized shared table for every client.

Chen et al., "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized Model Merging
Approach" (2025).

    score(u, i) = ⟨p_u, q_ui⟩                    p_u and Q_u personal; Q_u is sent
    local:      Q_u ← Q_u merged with G_u, item by item; then p_u and Q_u ← steps     (see `elastic_merge`)
    server:     G_u = Σ_v w_uv Q_v, where w_u on the simplex minimises                                (Eq. 13)
                Σ_v (w_uv − |D_v| / |D|)² + α (w_uv − s_uv)²,    s_uv = 1 / (1 + ‖Q_u − Q_v‖²)
    served:     with Q_u

The minimum is the projection of (|D_v| / |D| + α s_uv) / (1 + α) onto the simplex, computed for all clients
at once. The public code solves one quadratic programme per client.

Symbols: η is `learning_rate`, β is `adapter_learning_rate`, α is `similarity`.

Where paper and public code differ, `form=code` and `server=code` follow the code:
- On the client, see `elastic_merge`. The code uploads the adapter by accident; here it stays on the client.
  The code stops a client whose loss changes by less than 1e-4 of itself; here all epochs are run.
- The code compares the tables' projections on their first principal components, takes 1 / (1 + distance) and
  sets values above 0.9 to 1. It omits the 1 / (1 + α). It gives a new table to a tenth of the clients per
  round, mixed among themselves; the others neither merge nor train their adapters. Principal components have
  no sign; here they are given the sign of the mean table.

Ablations: `fedem-sr` replaces the local table by the shared one, `fedem-sm` merges with one weight for all,
`fedem-dm` with one learned weight per client (the output of the adapter in the paper; here a separate
parameter).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from solera.core.choices import Adam
from solera.core.context import MethodConfig
from solera.core.losses import BinaryCrossEntropy
from solera.core.method import Method
from solera.core.parts import Dot, ItemTable, Joint
from solera.core.schedule import Schedule, Scheduled
from solera.methods.elastic_merge import (
    ElasticMergeConfig,
    LearnedMergeConfig,
    MergeConfig,
    Merged,
    merging,
)
from solera.methods.similarity_weighted import SimilarityWeighted


class SimilarityConfig(MethodConfig):
    """Options of the server. Defaults: the paper's settings for MovieLens-100K."""

    embedding_size: int = Field(default=16, ge=1, description="length of user and item vectors")
    learning_rate: Scheduled = Field(
        default=Schedule(start=0.1), description="step size of user and item vectors"
    )
    local_epochs: int = Field(default=10, ge=1, description="passes over a client's own data per round")
    similarity: float = Field(default=1.1, ge=0, description="α: how much similar clients are preferred")
    server: Literal["paper", "code"] = Field(default="paper", description="whose similarity and weights")


class FedEMConfig(ElasticMergeConfig, SimilarityConfig):
    """Options including the adapter's."""


class FedEMDynamicConfig(LearnedMergeConfig, SimilarityConfig):
    """Options of the ablation that learns one number per client."""


class FedEMStaticConfig(MergeConfig, SimilarityConfig):
    """Options of the ablation with a fixed merging weight."""

    merge_weight: float = Field(default=0.5, ge=0, le=1, description="ρ, of the shared table")


def fedem(config: FedEMConfig) -> Method:
    """Build FedEM: dot × elastic merge × adapter, merge, train × similarity-weighted."""
    method = _unmerged(config)
    return merging(method, config.form, Merged(method.view, "elastic", config.adapter))


def fedem_dm(config: FedEMDynamicConfig) -> Method:
    """The ablation with one learned weight per client."""
    method = _unmerged(config, "fedem-dm")
    return merging(method, config.form, Merged(method.view, "dynamic"))


def fedem_sm(config: FedEMStaticConfig) -> Method:
    """The ablation with one weight for all clients and items."""
    method = _unmerged(config, "fedem-sm")
    return merging(method, config.form, Merged(method.view, "static", merge_weight=config.merge_weight))


def fedem_sr(config: SimilarityConfig) -> Method:
    """The ablation that replaces the local table by the shared one, as other methods do."""
    return _unmerged(config, "fedem-sr")


def _unmerged(config: SimilarityConfig, ablation: str | None = None) -> Method:
    """FedMF with a personalized table per client."""
    paper = "Chen et al. 2025, merging"
    return Method(
        name=ablation or "fedem",
        paper=f"{paper}, ablation" if ablation else paper,
        config=config,
        scorer=Dot(config.embedding_size),
        view=ItemTable(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=Joint(("user", "items"), Adam),
        aggregate=SimilarityWeighted(config.similarity, config.server),
    )
