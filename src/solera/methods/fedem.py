"""FedEM: elastic merging, and a personalized shared table for every client.

Chen et al., "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized Model Merging
Approach" (2025).

    score(u, i) = ⟨p_u, q_ui⟩                    p_u and Q_u personal; Q_u is sent
    local:      Q_u ← Q_u merged with G_u, item by item; then p_u and Q_u ← steps
    server:     G_u = Σ_v w_uv Q_v, where w_u on the simplex minimises                                (Eq. 13)
                Σ_v (w_uv − |D_v| / |D|)² + α (w_uv − s_uv)²,    s_uv = 1 / (1 + ‖Q_u − Q_v‖²)
    served:     with Q_u

The minimum is the projection of (|D_v| / |D| + α s_uv) / (1 + α) onto the simplex, computed for all clients
at once. The public code solves one quadratic programme per client.

Symbols: η is `learning_rate`, β is `adapter_learning_rate`, α is `similarity`.

Where paper and public code differ, `form=code` and `server=code` follow the code:
- On the client, the adapter is part of the code's forward pass: a round begins with a merge, and on every
  batch the adapter is updated first, then, through the merge, everything else; the merged table is served.
  There, a client without a new table trains its own one plainly: in the first round that is everybody.
- Algorithm 1 of the paper merges again in every epoch, which would undo the previous epoch. The paper's text
  merges once and then trains, and so does this implementation.
- The code uploads the adapter by accident; here it stays on the client.
  The code stops a client whose loss changes by less than 1e-4 of itself; here all epochs are run.
- The code compares the tables' projections on their first principal components, takes 1 / (1 + distance) and
  sets values above 0.9 to 1. It omits the 1 / (1 + α). It gives a new table to a tenth of the clients per
  round, mixed among themselves; the others neither merge nor train their adapters. Principal components have
  no sign; here they are given the sign of the mean table.

Ablations are values of `merge`: "replace" takes the shared table as the local one, "fixed" merges with one
weight for all, "client" with one learned weight per client (the output of the adapter in the paper; here a
separate parameter).

The client side is the plug-in `elastic-merge`, for any method with a shared item table:

    ρ_i  = MLP_u([g_i − q_ui ; q_ui])         a weight in [0, 1] for every item                        (Eq. 9)
    q_ui ← q_ui + ρ_i (g_i − q_ui)            of the shared table G and the client's own Q_u          (Eq. 10)
    the adapter MLP_u learns first, with all else frozen                                              (Eq. 11)
    then the method trains as it does, on Q_u, which is sent and served

In both forms, a round changes and sends the rows of all items. As a plug-in it leaves the server to the
method. `merge_server=code` takes the public code's: a round gives a new table to a tenth of the clients, as
in the code of FedEA, which preceded FedEM.

With `merge_start` the adapter gives the same ρ to all items at first, as in an initialization that FedEA's
code has and does not call. The rate of the items is the method's own: `item_rate` of PFedRec is then that of
a local table, where no mean over clients divides the step.

The plug-in `static-merge` merges with one weight ρ from round `aggregate_from` on, for preliminary
experiments of two papers. With ρ = 1 the local table is replaced by the shared one; with ρ = 0, or before the
first merge, clients learn alone. The client's table is served.

- Chen et al. 2025 (FedEM), Figure 2: FedMF under different ρ, for clients in five groups by their number of
  training items.
- Chen et al. 2025 (PFedCLR), Figure 2: FedMF whose aggregation begins in different rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from typing import Literal

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from solera.core.context import RoundContext, Schedule, Scheduled, Widths
from solera.core.errors import ConfigError
from solera.core.leaf import ITEMS, Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam, Move, Stage, Update
from solera.core.randomness import Purpose
from solera.math.mixing import onto_simplex, squared_distances
from solera.methods.parts import (
    LOCAL,
    BinaryCrossEntropy,
    Dot,
    FactorizationConfig,
    ItemTable,
    Joint,
    OnLocal,
    TablePerClient,
    on_local_table,
    require_shared_table,
)

Merge = Literal["elastic", "client", "fixed", "replace"]


class ElasticMergeConfig(BaseModel):
    """Defaults: the paper's settings."""

    form: Literal["paper", "code"] = Field(
        default="paper", description="paper: merge, then train; code: train through the merge"
    )

    adapter_learning_rate: Scheduled = Field(
        default=Schedule(start=0.1), description="step size of the adapter"
    )

    adapter: Widths = Field(
        default=(16, 8), description="widths of the adapter's hidden layers, e.g. 16,8; may be none"
    )

    merge_start: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="ρ of every item at first; none: as drawn, about one half",
    )


class ElasticMergePlugConfig(ElasticMergeConfig):
    """Options of the plug-in, which may replace the method's aggregate by that of FedEM's public code."""

    merge_server: Literal["method", "code"] = Field(
        default="method", description="the method's own aggregate, or a new table for a tenth of the clients"
    )
    merge_similarity: float = Field(
        default=0.9, ge=0, description="α of merge_server=code: how much similar clients are preferred"
    )


class SimilarityConfig(FactorizationConfig):
    """Options of the server. Defaults: the paper's settings for MovieLens-100K."""

    learning_rate: Scheduled = Field(
        default=Schedule(start=0.1), description="step size of user and item vectors"
    )
    similarity: float = Field(default=1.1, ge=0, description="α: how much similar clients are preferred")
    server: Literal["paper", "code"] = Field(default="paper", description="whose similarity and weights")


_REFRESHED = 0.1  # fraction of the clients per round in the public code
_ALIKE = 0.9  # values above this are set to 1 in the public code


@dataclass(frozen=True)
class SimilarityWeighted(TablePerClient):
    """Mix every client's table from all tables, with larger weights for similar and for larger clients."""

    alpha: float
    form: Literal["paper", "code"] = "paper"
    label: str = "similarity-weighted, a table per client"
    weighted: bool = True

    @property
    def tells(self) -> str:
        """In the code's form, some clients have no new table."""
        return "items.renewed" if self.form == "code" else ""

    def renewed(self, clients: int, context: RoundContext) -> Tensor:
        told = torch.zeros(clients)
        told[_drawn(clients, context)] = 1
        return told

    @property
    def sketchable(self) -> bool:
        """The code's form takes principal components of single tables."""
        return self.form == "paper"

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """Eq. 13 for all clients at once."""
        if self.form == "code":
            return self._of_some(tables, weights, context)
        alike = 1 / (1 + squared_distances(tables))
        return onto_simplex((weights / weights.sum() + self.alpha * alike) / (1 + self.alpha))

    def _of_some(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        some = _drawn(len(tables), context).to(tables.device)
        alike = 1 / (1 + squared_distances(_first_components(tables[some])).sqrt())
        alike[alike > _ALIKE] = 1
        mine = weights[some]
        among = onto_simplex(mine / mine.sum() + self.alpha * alike)
        mixing = torch.eye(len(tables), dtype=among.dtype, device=tables.device)
        mixing[some[:, None], some] = among
        return mixing


def _drawn(clients: int, context: RoundContext) -> Tensor:
    """The places of the clients that get a new table, ascending."""
    count = max(1, round(_REFRESHED * clients))
    drawn = context.generator(Purpose.CLIENTS, 1).choice(clients, count, replace=False)
    return torch.from_numpy(drawn).sort().values


def _first_components(tables: Tensor) -> Tensor:
    """Coordinates [c, n, 1] of the items along each table's direction of largest variance."""
    centred = tables - tables.mean(1, keepdim=True)
    directions = torch.linalg.eigh(centred.transpose(1, 2) @ centred).eigenvectors[..., -1:]
    mean = centred.mean(0)
    reference = torch.linalg.eigh(mean.T @ mean).eigenvectors[:, -1]
    signs = torch.sign((directions * reference[:, None]).sum(1, keepdim=True))
    return torch.matmul(centred, directions * signs)


@dataclass(frozen=True)
class Merged(OnLocal):
    """The shared table merged into the client's own, with a weight per item, per client, or for all.

    If the server tells clients by the leaf `told` whether their shared table is new (1) or not (0), only a
    new one is merged.
    """

    merge: Merge = "elastic"
    adapter: tuple[int, ...] = (16, 8)
    merge_weight: float = 0.5
    start: float | None = None
    told: str = ""
    settles: str = LOCAL

    def does(self, hook: str) -> bool:
        """The gradient through the merge is left to autograd."""
        return hook != "gradient" and super().does(hook)

    @property
    def label(self) -> str:
        how = {"elastic": "elastic merge", "client": "merge by client", "fixed": "static merge"}[self.merge]
        return f"{self.inner.label}, {how} with local"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves of the view on a local table, the adapter's, and what the server tells."""
        told = (Leaf(self.told, (1,), Home.SHARED, Init.ZEROS),) if self.told else ()
        return (*super().leaves, *self.adapter_leaves, *told)

    @property
    def adapter_leaves(self) -> tuple[Leaf, ...]:
        """Weight and bias of each layer, one number per client, or nothing."""
        if self.merge == "fixed":
            return ()
        if self.merge == "client":
            return (Leaf("adapter", (1,), Home.PERSONAL, Init.ZEROS),)
        (d,) = next(leaf.shape for leaf in self.inner.leaves if leaf.name == ITEMS)
        sizes = (2 * d, *self.adapter, 1)
        layers = list(enumerate(pairwise(sizes), start=1))
        from_zero = len(layers) if self.start else 0
        return tuple(
            Leaf(
                f"adapter.{n}.{part}",
                shape,
                Home.PERSONAL,
                Init.ZEROS if n == from_zero else Init.LINEAR,
                fan_in=width,
            )
            for n, (width, out) in layers
            for part, shape in (("weight", (out, width)), ("bias", (out,)))
        )

    def weight(self, params: Params) -> Tensor | float:
        """ρ, [..., n, 1] or broadcastable to it; 0 if the client's shared table is not new."""
        weight = self._weight(params)
        return weight * params[self.told].unsqueeze(-1) if self.told else weight

    def _weight(self, params: Params) -> Tensor | float:
        if self.merge == "fixed":
            return self.merge_weight
        if self.merge == "client":
            return torch.sigmoid(params["adapter"] + self._offset).unsqueeze(-1)
        # [G − Q ; Q] times the first layer, without concatenating it.
        of_difference, of_local = params["adapter.1.weight"].transpose(-1, -2).chunk(2, -2)
        x = (params[ITEMS] @ of_difference).add_(params[LOCAL] @ (of_local - of_difference))
        x = x.add_(params["adapter.1.bias"].unsqueeze(-2))
        for n in range(2, len(self.adapter) + 2):
            weight, bias = params[f"adapter.{n}.weight"], params[f"adapter.{n}.bias"]
            x = (torch.relu_(x) @ weight.transpose(-1, -2)).add_(bias.unsqueeze(-2))
        return torch.sigmoid(x.add_(self._offset) if self.start else x)

    @property
    def _offset(self) -> float:
        return log(self.start / (1 - self.start)) if self.start else 0.0

    def settle(self, params: Params) -> Tensor:
        """Q + ρ (G − Q). Of many clients, only those with a new table are computed; the others have Q."""
        if not self.told or params[self.told].dim() == 1:
            return self._merge(params)
        chosen = params[self.told].squeeze(-1).nonzero().squeeze(-1)
        names = (self.told, ITEMS, LOCAL, *(leaf.name for leaf in self.adapter_leaves))
        new = {name: params[name][chosen] for name in names}
        return params[LOCAL].index_copy(0, chosen, self._merge(new))

    def _merge(self, params: Params) -> Tensor:
        return torch.lerp(params[LOCAL], params[ITEMS], self.weight(params))

    def table(self, params: Params) -> Tensor:
        return self.settle(params)


@dataclass(frozen=True)
class MergedBefore(Merged):
    """`Merged` where the merge is already done: the client's own table is trained and served."""

    def table(self, params: Params) -> Tensor:
        return params[LOCAL]


@dataclass(frozen=True)
class MergeThenTrain(Update):
    """Train the adapter, then merge, then run the method's own stages on the local table."""

    inner: Update
    merged: Merged

    @property
    def label(self) -> str:
        before = "adapter, merge" if self.merged.adapter_leaves else "merge"
        return f"{before}, then {self.inner.label}"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """A stage for the adapter, then the method's stages, the first of which starts with the merge."""
        first, *rest = (on_local_table(stage, self.merged.inner) for stage in self.inner.stages(context))
        adapting = _adapter_moves(self.merged, context)
        learning = (Stage(context.local_epochs, adapting, self.merged),) if adapting else ()
        return (*learning, replace(first, settle=True), *rest)


@dataclass(frozen=True)
class TrainThroughMerge(Update):
    """Merge, then on every batch train the adapter and, through the merge, everything else.

    A client without a new table trains its own one plainly: ρ and the adapter's gradient are zero, so Adam
    does not move the adapter. In the first round that is everybody.
    """

    inner: Update
    merged: Merged

    @property
    def label(self) -> str:
        own = self.inner.label
        return f"adapter, then {own}, on every batch" if self.merged.adapter_leaves else f"merge, then {own}"

    @property
    def told(self) -> str:
        """The leaf that tells clients whether their table is new."""
        return self.merged.told

    def stages_without_news(self, context: RoundContext) -> tuple[Stage, ...]:
        """The method's stages on the local table, which is sent whole after the first round."""
        first, *rest = (on_local_table(stage, self.merged.inner) for stage in self.inner.stages(context))
        return (replace(first, settle=context.round > 0), *rest)

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The method's stages, with the adapter's move before every other."""
        if not context.round:
            return self.stages_without_news(context)
        adapting = _adapter_moves(self.merged, context)

        def through(number: int, stage: Stage) -> Stage:
            view = replace(self.merged, inner=stage.view or self.merged.inner)
            moves = tuple(move.renamed({ITEMS: LOCAL}) for move in stage.moves)
            return replace(stage, moves=(*adapting, *moves), view=view, settle=number == 0)

        return tuple(through(number, stage) for number, stage in enumerate(self.inner.stages(context)))


def _adapter_moves(merged: Merged, context: RoundContext) -> tuple[Move, ...]:
    names = tuple(leaf.name for leaf in merged.adapter_leaves)
    return (Move(names, Adam(context.hyper["adapter_learning_rate"])),) if names else ()


def merging(method: Method, form: str, merged: Merged) -> Method:
    """The method on a local table, with the shared table merged into it."""
    require_shared_table(method, "elastic-merge")
    if form == "code":
        during = replace(merged, told=method.aggregate.tells)
        return replace(method, view=during, update=TrainThroughMerge(method.update, during))
    before = MergedBefore(merged.inner, merged.merge, merged.adapter, merged.merge_weight, merged.start)
    return replace(method, view=before, update=MergeThenTrain(method.update, merged))


def elastic_merge(method: Method, config: ElasticMergePlugConfig) -> Method:
    """Apply the plug-in to a method."""
    if config.merge_server == "code":
        method = _served_as_in_the_code(method, config.merge_similarity)
    merged = Merged(method.view, adapter=config.adapter, start=config.merge_start)
    return merging(method, config.form, merged)


def _served_as_in_the_code(method: Method, similarity: float) -> Method:
    if method.aggregate.target:
        raise ConfigError(
            f"'elastic-merge' with merge_server=code cannot be used with {method.name!r}: its server already "
            "makes a table for every client",
            "leave merge_server out",
        )
    return replace(method, aggregate=SimilarityWeighted(similarity, "code"))


class FedEMConfig(ElasticMergeConfig, SimilarityConfig):
    """Options including those of the merge."""

    merge: Merge = Field(
        default="elastic",
        description="a weight per item, or an ablation: one per client, one for all, or no merge at all",
    )
    merge_weight: float = Field(default=0.5, ge=0, le=1, description="ρ, of the shared table, if it is fixed")


def fedem(config: FedEMConfig) -> Method:
    """Build FedEM: dot × elastic merge × adapter, merge, train × similarity-weighted."""
    view = ItemTable(config.embedding_size)
    method = Method(
        name="fedem",
        paper="Chen et al. 2025, merging",
        config=config,
        scorer=Dot(config.embedding_size),
        view=view,
        loss=BinaryCrossEntropy(),
        update=Joint(("user", "items"), Adam),
        aggregate=SimilarityWeighted(config.similarity, config.server),
    )
    if config.merge == "replace":
        return method
    merged = Merged(view, config.merge, config.adapter, config.merge_weight, config.merge_start)
    return merging(method, config.form, merged)


class StaticMergeConfig(BaseModel):
    """Defaults: the local table is replaced in every round."""

    merge_weight: float = Field(default=1.0, ge=0, le=1, description="ρ, of the shared table")
    aggregate_from: int = Field(
        default=1, ge=1, description="the first round in which clients take the shared table"
    )


@dataclass(frozen=True)
class MergeFrom(MergeThenTrain):
    """Merge from a given round on, then run the method's own stages on the local table."""

    first_round: int = 1

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The stages of a round. `aggregate_from` counts rounds from 1, the context from 0."""
        stages = super().stages(context)
        if context.round + 1 >= self.first_round:
            return stages
        return tuple(replace(stage, settle=False) for stage in stages)


def static_merge(method: Method, config: StaticMergeConfig) -> Method:
    """Apply the plug-in to a method."""
    require_shared_table(method, "static-merge")
    merged = Merged(method.view, "fixed", merge_weight=config.merge_weight)
    made = merging(method, "paper", merged)
    return replace(made, update=MergeFrom(method.update, merged, config.aggregate_from))
