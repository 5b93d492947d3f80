"""pFedGraph: every client's table is mixed along an inferred collaboration graph.

Ye et al., "Personalized Federated Learning with Inferred Collaboration Graphs" (ICML 2023), on matrix
factorization, the form that later papers on federated recommendation compare with.

    score(u, i) = ⟨p_u, q_ui⟩       p_u personal
    local:      p_u and Q_u ← steps on binary cross-entropy − λ cos(Q_u, R_u),   from Q_u = R_u
    server:     R_u ← Σ_v w_uv Q_v, where w_u on the simplex minimises
                Σ_v α (w_uv − |D_v| / |D|)² − w_uv s_uv,     s_uv = cosine of Q_u − Q_0 and Q_v − Q_0

Q_0 is the initial table, the same for everybody. The minimum is the projection of |D_v| / |D| + s_uv / (2α)
onto the simplex, computed for all clients at once. The public code solves one quadratic programme per client.

Symbols: α is `evenness`, λ is `attraction`. With `refreshed` below 1 the server makes new mixtures for this
share of the round's clients, among themselves; the others keep their own tables. PFedCLR's comparison has
0.1.

Differences from the original:
- It takes the cosine of whole models, and the public code also divides the neighbours' models by their norms
  before it adds them up. Here it is the cosine of the batch's rows, each weighted as in the loss: a client
  trains no others, and the cosine of whole tables would hardly change with a few rows.
- In the public code the term has the other sign, which pushes the models apart (λ = 0.01 there). A negative
  `attraction` does the same.
- The public code sets cosines above 0.9 to 1; here they stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from solera.core.context import Batch, RoundContext
from solera.core.leaf import Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam, View
from solera.core.randomness import Purpose
from solera.math.mixing import cosines, onto_simplex
from solera.methods.parts import BinaryCrossEntropy, Dot, FactorizationConfig, Joint, TablePerClient

RECEIVED = "change.downloaded"


class PFedGraphConfig(FactorizationConfig):
    """Defaults: those of FedMF, and the public code's α and λ, the latter with the paper's sign."""

    evenness: float = Field(
        default=0.8, gt=0, description="α: how closely weights keep to the clients' sizes"
    )
    attraction: float = Field(
        default=0.01,
        description="λ: weight of the cosine to the downloaded table; negative pushes away from it",
    )
    refreshed: float = Field(
        default=1.0, gt=0, le=1, description="share of the round's clients that get a new mixture"
    )


@dataclass(frozen=True)
class SinceStart(View):
    """The common initial table, plus the change since then. Only the change is regularized.

    A cosine draws the table towards the downloaded one.
    """

    embedding_size: int
    attraction: float = 0.0
    label: str = "common start + change since"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        shape = (self.embedding_size,)
        start = Leaf("items", shape, Home.SHARED, per_item=True)
        change = Leaf("change", shape, Home.SHARED, Init.ZEROS, per_item=True, upload=True)
        received = Leaf(RECEIVED, shape, Home.SHARED, Init.ZEROS, per_item=True, derived_from="change")
        return (start, change, received) if self.attraction else (start, change)

    def derive(self, tables: Params) -> Params:
        return {RECEIVED: tables["change"]} if self.attraction and "change" in tables else {}

    def see(self, params: Params) -> Tensor:
        return params["items"] + params["change"]

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor | float:
        """−λ · cosine of the batch's rows of Q and R."""
        if not self.attraction:
            return 0.0
        return -self.attraction * _Cosine.of(self.see(params), self._received(params), batch.weights).value

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        if not self.attraction:
            return {"change": slope}
        ours, theirs = self.see(params), self._received(params)
        by_rows = _Cosine.of(ours, theirs, batch.weights).gradient(ours, theirs, batch.weights)
        return {"change": slope - self.attraction * by_rows}

    def _received(self, params: Params) -> Tensor:
        return params["items"] + params[RECEIVED]


class _Cosine(NamedTuple):
    """Cosines of two sets of rows [..., n, d], each set as one long vector."""

    value: Tensor  # [...]
    first: Tensor  # squared lengths [...]
    second: Tensor

    @classmethod
    def of(cls, one: Tensor, two: Tensor, weights: Tensor) -> _Cosine:
        both, first, second = (
            (weights * (x * y).sum(-1)).sum(-1) for x, y in ((one, two), (one, one), (two, two))
        )
        return cls(both / (first * second).sqrt(), first, second)

    def gradient(self, one: Tensor, two: Tensor, weights: Tensor) -> Tensor:
        """w_i (r_i / √(‖Q‖² ‖R‖²) − cos · q_i / ‖Q‖²), by the rows of the first set."""
        value, first, second = (each[..., None, None] for each in self)
        return weights.unsqueeze(-1) * (two / (first * second).sqrt() - value / first * one)


@dataclass(frozen=True)
class CollaborationGraph(TablePerClient):
    """Weights by data size and by the cosine of the clients' changes since the start."""

    alpha: float
    refreshed: float = 1.0
    label: str = "collaboration graph, a table per client"
    weighted: bool = True
    source: str = "change"
    target: str = "change"
    sketchable: bool = True

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """The projections onto the simplex, row by row. Clients that are not refreshed keep their tables."""
        count = max(1, round(self.refreshed * len(tables)))
        if count >= len(tables):
            return self._graph(tables, weights)
        drawn = context.generator(Purpose.CLIENTS, 3).choice(len(tables), count, replace=False)
        some = torch.from_numpy(drawn).sort().values.to(tables.device)
        among = self._graph(tables[some], weights[some])
        mixing = torch.eye(len(tables), dtype=among.dtype, device=tables.device)
        mixing[some[:, None], some] = among
        return mixing

    def _graph(self, tables: Tensor, weights: Tensor) -> Tensor:
        return onto_simplex(weights / weights.sum() + cosines(tables) / (2 * self.alpha))


def pfedgraph(config: PFedGraphConfig) -> Method:
    """Build pFedGraph: dot × since the start × joint × collaboration graph."""
    return Method(
        name="pfedgraph",
        paper="Ye et al. 2023",
        config=config,
        scorer=Dot(config.embedding_size),
        view=SinceStart(config.embedding_size, config.attraction),
        loss=BinaryCrossEntropy(),
        update=Joint(("user", "change"), Adam),
        aggregate=CollaborationGraph(config.evenness, config.refreshed),
    )
