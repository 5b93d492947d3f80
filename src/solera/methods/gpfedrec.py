"""GPFedRec: personalization guided by a graph of users.

Zhang et al., "GPFedRec: Graph-Guided Personalization for Federated Recommendation" (KDD 2024).

    score(u, i) = MLP_u([p_u ; q_ui])             the score function MLP_u and p_u are personal
    local:      MLP_u, p_u and Q_u ← steps on binary cross-entropy + λ mean (Q_u − R_u)², from Q_u = G
    server:     users are neighbours where the cosine of their tables is above γ times the mean cosine
                R_u ← mean of the neighbours' tables,  G ← mean of all R_u
    served:     with the client's own Q_u

The penalty applies to the whole table. On a row without data its steps have a closed form: T of them lead
from G to G + z (R_u − G), z = 1 − (1 − 2 λ η' / (n_items · d))^T. The server knows T, so here it sends that
table, and the client trains the rows it touches from there. This leaves out the penalty's effect during the
steps on those rows: each step would be shrunk by the later ones.

Symbols: λ is `guidance`, γ is `threshold`, η is `learning_rate`, of MLP_u; of p_u it is η · `item_rate`, of
the items η' = η · n_items · `item_rate`, all as in the public code (which subtracts η from both).

Where paper and public code differ, `neighbours=code` follows the code: it thresholds cosine *distances* from
above, so that neighbours are the users whose tables differ most. Laplace noise on uploads is left out.

`scorer=linear` uses PFedRec's personal linear layer in place of MLP_u and p_u.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from solera.core.context import MethodConfig, RoundContext, Widths
from solera.core.leaf import Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Scorer
from solera.math.mixing import cosines
from solera.methods.parts import (
    BinaryCrossEntropy,
    ItemTable,
    PersonalLinear,
    TablePerClient,
    ThreeRates,
)


class GPFedRecConfig(MethodConfig):
    """Defaults: the public code's settings for MovieLens-100K."""

    scorer: Literal["perceptron", "linear"] = Field(
        default="perceptron", description="the personal score function"
    )
    hidden: Widths = Field(default=(32, 16, 8), description="widths of the perceptron's hidden layers")
    item_rate: float = Field(default=80.0, gt=0, description="η' / (η · number of items)")
    guidance: float = Field(
        default=1.0, ge=0, description="λ: how strongly a table is drawn to the neighbours'"
    )
    threshold: float = Field(default=1.0, ge=0, description="γ, of the graph, in units of the mean")
    neighbours: Literal["similar", "code"] = Field(
        default="similar", description="similar users, or the code's"
    )


@dataclass(frozen=True)
class PersonalPerceptron(Scorer):
    """A personal perceptron on the vectors of user and item."""

    embedding_size: int
    hidden: tuple[int, ...]
    label: str = "personal perceptron"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The user vector, and weight and bias of each layer."""
        sizes = (2 * self.embedding_size, *self.hidden, 1)
        return (
            Leaf("user", (self.embedding_size,), Home.PERSONAL),
            *(
                Leaf(f"mlp.{layer}.{part}", shape, Home.PERSONAL, Init.LINEAR, fan_in=width)
                for layer, (width, out) in enumerate(pairwise(sizes))
                for part, shape in (("weight", (out, width)), ("bias", (out,)))
            ),
        )

    def score(self, params: Params, items: Tensor) -> Tensor:
        """The perceptron's output. The user's half of the first layer is computed once for all items."""
        (first, bias), *others = self._layers(params)
        user, item = torch.split(first, self.embedding_size, -1)
        known = (user @ params["user"].unsqueeze(-1)).squeeze(-1) + bias
        x = (items @ item.transpose(-1, -2)).add_(known.unsqueeze(-2))
        for weight, bias in others:
            x = (torch.relu_(x) @ weight.transpose(-1, -2)).add_(bias.unsqueeze(-2))
        return x.squeeze(-1)

    def _layers(self, params: Params) -> Iterator[tuple[Tensor, Tensor]]:
        for layer in range(len(self.hidden) + 1):
            yield params[f"mlp.{layer}.weight"], params[f"mlp.{layer}.bias"]


@dataclass(frozen=True)
class UserGraph(TablePerClient):
    """Move the mean table of all clients towards the mean table of each client's neighbours in the graph."""

    neighbours: Literal["similar", "code"] = "similar"
    label: str = "graph of users, a table per client"
    sketchable: bool = True

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """Mixing weights that give every client G + z_u (R_u − G)."""
        graph = self.graph(tables, context.hyper["threshold"])
        drawn = self.drawn(weights, tables.shape[2], context)[:, None]
        return (1 - drawn) * graph.mean(0) + drawn * graph

    def graph(self, tables: Tensor, threshold: float) -> Tensor:
        """The weights [c, c] that form every R_u. A user without neighbours keeps its own table."""
        alike = cosines(tables)
        measure = alike if self.neighbours == "similar" else 1 - alike
        chosen = (measure > threshold * measure.mean()).double()
        lonely = chosen.sum(1) == 0
        chosen[lonely, lonely] = 1
        return chosen / chosen.sum(1, keepdim=True)

    def drawn(self, weights: Tensor, embedding_size: int, context: RoundContext) -> Tensor:
        """z [c], given the clients' numbers of training items."""
        hyper = context.hyper
        batches = (weights * (1 + context.negatives) / context.batch_size).ceil() * context.local_epochs
        step = 2 * hyper["guidance"] * hyper["learning_rate"] * hyper["item_rate"] / embedding_size
        return 1 - (1 - min(step, 1.0)) ** batches


def gpfedrec(config: GPFedRecConfig) -> Method:
    """Build GPFedRec: personal perceptron × fine-tuned and kept × joint × user graph."""
    d = config.embedding_size
    scorer = PersonalLinear(d) if config.scorer == "linear" else PersonalPerceptron(d, config.hidden)
    names = tuple(leaf.name for leaf in scorer.leaves)
    fast = tuple(name for name in names if name == "user")
    return Method(
        name="gpfedrec",
        paper="Zhang et al. 2024",
        config=config,
        scorer=scorer,
        view=ItemTable(d, keep=True),
        loss=BinaryCrossEntropy(),
        update=ThreeRates(tuple(name for name in names if name not in fast), fast),
        aggregate=UserGraph(config.neighbours),
    )
