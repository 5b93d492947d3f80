"""pFedGraph: every client's table is mixed along an inferred collaboration graph.

Ye et al., "Personalized Federated Learning with Inferred Collaboration Graphs" (ICML 2023), on matrix
factorization, the form that later papers on federated recommendation compare with.

    score(u, i) = ⟨p_u, q_ui⟩       p_u personal
    local:      p_u and Q_u ← steps, as in FedMF
    server:     Q_u ← Σ_v w_uv Q_v, where w_u on the simplex minimises
                Σ_v α (w_uv − |D_v| / |D|)² − w_uv s_uv,     s_uv = cosine of Q_u − Q_0 and Q_v − Q_0

Q_0 is the initial table, the same for everybody. The minimum is the projection of |D_v| / |D| + s_uv / (2α)
onto the simplex, computed for all clients at once. The public code solves one quadratic programme per client.

Symbols: α is `evenness`.

Left out: the term λ · cosine to the neighbours' models that the original adds to the local loss
(λ = 0.01 in the public code, where its sign pushes the models apart). The public code sets cosines above 0.9
to 1; here they stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field
from torch import Tensor

from solera.core.choices import Adam
from solera.core.context import Batch, MethodConfig, RoundContext
from solera.core.losses import BinaryCrossEntropy
from solera.core.method import Method
from solera.core.mixing import onto_simplex
from solera.core.parts import Dot, Joint, Mean
from solera.core.schedule import Schedule, Scheduled
from solera.core.similarity import cosines
from solera.core.spec import Home, Init, Leaf, Params
from solera.core.upload import Totals


class PFedGraphConfig(MethodConfig):
    """Defaults: those of FedMF, and the public code's α."""

    embedding_size: int = Field(default=16, ge=1, description="length of user and item vectors")
    learning_rate: Scheduled = Field(
        default=Schedule(start=0.01), description="step size of user and item vectors"
    )
    local_epochs: int = Field(default=10, ge=1, description="passes over a client's own data per round")
    evenness: float = Field(
        default=0.8, gt=0, description="α: how closely weights keep to the clients' sizes"
    )


@dataclass(frozen=True)
class SinceStart:
    """The common initial table, plus the change since then. Only the change is regularized."""

    embedding_size: int
    label: str = "common start + change since"
    keeps: tuple[str, ...] = ()

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Q_0 and Q − Q_0."""
        shape = (self.embedding_size,)
        return (
            Leaf("items", shape, Home.SHARED, per_item=True),
            Leaf("change", shape, Home.SHARED, Init.ZEROS, per_item=True, upload=True),
        )

    def see(self, params: Params) -> Tensor:
        """The current table Q."""
        return params["items"] + params["change"]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The incoming gradient, unchanged."""
        return {"change": slope}


@dataclass(frozen=True)
class CollaborationGraph:
    """Weights by data size and by the cosine of the clients' changes since the start."""

    alpha: float
    label: str = "collaboration graph, a table per client"
    weighted: bool = True
    source: str = "change"
    target: str = "change"
    sketchable: bool = True

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """The projections onto the simplex, row by row."""
        return onto_simplex(weights / weights.sum() + cosines(tables) / (2 * self.alpha))

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """Average the leaves of which clients have no version of their own."""
        return Mean(weighted=True).combine(shared, totals, context)


def pfedgraph(config: PFedGraphConfig) -> Method:
    """Build pFedGraph: dot × since the start × joint × collaboration graph."""
    return Method(
        name="pfedgraph",
        paper="Ye et al. 2023",
        config=config,
        scorer=Dot(config.embedding_size),
        view=SinceStart(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=Joint(("user", "change"), Adam),
        aggregate=CollaborationGraph(config.evenness),
    )
