"""Elastic merging, the client side of FedEM, for any method with a shared item table.

Chen et al., "Breaking the Aggregation Bottleneck in Federated Recommendation: A Personalized Model Merging
Approach" (2025).

    ρ_i  = MLP_u([g_i − q_ui ; q_ui])         a weight in [0, 1] for every item                        (Eq. 9)
    q_ui ← q_ui + ρ_i (g_i − q_ui)            of the shared table G and the client's own Q_u          (Eq. 10)
    the adapter MLP_u learns first, with all else frozen                                              (Eq. 11)
    then the method trains as it does, on Q_u, which is sent and served

Symbols: β is `adapter_learning_rate`.

Algorithm 1 of the paper merges again in every epoch, which would undo the previous epoch. The paper's text
merges once and then trains, and so does this implementation. In the public code (`form=code`) the adapter is
part of the forward pass: a round begins with a merge, and on every batch the adapter is updated first, then,
through the merge, everything else; the merged table is served. There, a client without a new table trains
its own one plainly: in the first round that is everybody. In both forms, a round changes and sends the rows
of all items.

As a plug-in it leaves the server to the method. `merge_server=code` takes the public code's, see `fedem`: a
round gives a new table to a tenth of the clients, as in the code of FedEA, which preceded FedEM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from solera.core.choices import Adam, Aggregate, Move, Stage, Tailoring, Update
from solera.core.context import RoundContext, Widths
from solera.core.errors import ConfigError
from solera.core.local_table import LOCAL, OnLocal, on_local_table, require_shared_table
from solera.core.method import Method
from solera.core.rare_choices import Telling
from solera.core.schedule import Schedule, Scheduled
from solera.core.spec import Home, Init, Leaf, Params
from solera.core.wrappers import ITEMS
from solera.methods.similarity_weighted import SimilarityWeighted

Merge = Literal["elastic", "dynamic", "static"]


class MergeConfig(BaseModel):
    """Settings for when the merge takes place."""

    form: Literal["paper", "code"] = Field(
        default="paper", description="paper: merge, then train; code: train through the merge"
    )


class LearnedMergeConfig(MergeConfig):
    """Defaults: the paper's settings."""

    adapter_learning_rate: Scheduled = Field(
        default=Schedule(start=0.1), description="step size of the adapter"
    )


class ElasticMergeConfig(LearnedMergeConfig):
    """Defaults: the paper's settings."""

    adapter: Widths = Field(
        default=(16, 8), description="widths of the adapter's hidden layers, e.g. 16,8; may be none"
    )


class ElasticMergePlugConfig(ElasticMergeConfig):
    """Options of the plug-in, which may replace the method's aggregate by that of FedEM's public code."""

    merge_server: Literal["method", "code"] = Field(
        default="method", description="the method's own aggregate, or a new table for a tenth of the clients"
    )
    merge_similarity: float = Field(
        default=0.9, ge=0, description="α of merge_server=code: how much similar clients are preferred"
    )


@dataclass(frozen=True)
class Merged(OnLocal):
    """The shared table merged into the client's own, with a weight per item, per client, or for all.

    If the server tells clients by the leaf `told` whether their shared table is new (1) or not (0), only a
    new one is merged.
    """

    merge: Merge = "elastic"
    adapter: tuple[int, ...] = (16, 8)
    merge_weight: float = 0.5
    told: str = ""
    settles: str = LOCAL

    @property
    def label(self) -> str:
        """The inner label and the kind of merge."""
        how = {"elastic": "elastic merge", "dynamic": "merge by client", "static": "static merge"}[self.merge]
        return f"{self.inner.label}, {how} with local"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves of the view on a local table, the adapter's, and what the server tells."""
        told = (Leaf(self.told, (1,), Home.SHARED, Init.ZEROS),) if self.told else ()
        return (*super().leaves, *self.adapter_leaves, *told)

    @property
    def adapter_leaves(self) -> tuple[Leaf, ...]:
        """Weight and bias of each layer, one number per client, or nothing."""
        if self.merge == "static":
            return ()
        if self.merge == "dynamic":
            return (Leaf("adapter", (1,), Home.PERSONAL, Init.ZEROS),)
        (d,) = next(leaf.shape for leaf in self.inner.leaves if leaf.name == ITEMS)
        sizes = (2 * d, *self.adapter, 1)
        return tuple(
            Leaf(f"adapter.{n}.{part}", shape, Home.PERSONAL, Init.LINEAR, fan_in=width)
            for n, (width, out) in enumerate(pairwise(sizes), start=1)
            for part, shape in (("weight", (out, width)), ("bias", (out,)))
        )

    def weight(self, params: Params) -> Tensor | float:
        """ρ, [..., n, 1] or broadcastable to it; 0 if the client's shared table is not new."""
        weight = self._weight(params)
        return weight * params[self.told].unsqueeze(-1) if self.told else weight

    def _weight(self, params: Params) -> Tensor | float:
        if self.merge == "static":
            return self.merge_weight
        if self.merge == "dynamic":
            return torch.sigmoid(params["adapter"]).unsqueeze(-1)
        # [G − Q ; Q] times the first layer, without concatenating it.
        of_difference, of_local = params["adapter.1.weight"].transpose(-1, -2).chunk(2, -2)
        x = (params[ITEMS] @ of_difference).add_(params[LOCAL] @ (of_local - of_difference))
        x = x.add_(params["adapter.1.bias"].unsqueeze(-2))
        for n in range(2, len(self.adapter) + 2):
            weight, bias = params[f"adapter.{n}.weight"], params[f"adapter.{n}.bias"]
            x = (torch.relu_(x) @ weight.transpose(-1, -2)).add_(bias.unsqueeze(-2))
        return torch.sigmoid(x)

    def merged_by(self, before: Params, after: Params) -> Tensor:
        """The weights used for serving."""
        return torch.as_tensor(self.weight(after))

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
        """The merged table."""
        return self.settle(params)


@dataclass(frozen=True)
class MergedBefore(Merged):
    """`Merged` where the merge is already done: the client's own table is trained and served."""

    def merged_by(self, before: Params, after: Params) -> Tensor:
        """The weights of the merge, from the tables before the round and the adapter learned before it."""
        learned = {leaf.name: after[leaf.name] for leaf in self.adapter_leaves}
        return torch.as_tensor(self.weight(before | learned))

    def table(self, params: Params) -> Tensor:
        """The local table."""
        return params[LOCAL]


@dataclass(frozen=True)
class MergeThenTrain:
    """Train the adapter, then merge, then run the method's own stages on the local table."""

    inner: Update
    merged: Merged

    @property
    def label(self) -> str:
        """The method's own label, after the merge."""
        before = "adapter, merge" if self.merged.adapter_leaves else "merge"
        return f"{before}, then {self.inner.label}"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """A stage for the adapter, then the method's stages, the first of which starts with the merge."""
        first, *rest = (on_local_table(stage, self.merged.inner) for stage in self.inner.stages(context))
        adapting = _adapter_moves(self.merged, context)
        learning = (Stage(context.local_epochs, adapting, self.merged),) if adapting else ()
        return (*learning, replace(first, settle=True), *rest)


@dataclass(frozen=True)
class TrainThroughMerge:
    """Merge, then on every batch train the adapter and, through the merge, everything else.

    A client without a new table trains its own one plainly: ρ and the adapter's gradient are zero, so Adam
    does not move the adapter. In the first round that is everybody.
    """

    inner: Update
    merged: Merged

    @property
    def label(self) -> str:
        """The method's own label, after the adapter's step, if there is one."""
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
        during = replace(merged, told=_told(method.aggregate))
        return replace(method, view=during, update=TrainThroughMerge(method.update, during))
    before = MergedBefore(merged.inner, merged.merge, merged.adapter, merged.merge_weight)
    return replace(method, view=before, update=MergeThenTrain(method.update, merged))


def _told(aggregate: Aggregate) -> str:
    return aggregate.tells if isinstance(aggregate, Telling) else ""


def elastic_merge(method: Method, config: ElasticMergePlugConfig) -> Method:
    """Apply the plug-in to a method."""
    if config.merge_server == "code":
        method = _served_as_in_the_code(method, config.merge_similarity)
    return merging(method, config.form, Merged(method.view, adapter=config.adapter))


def _served_as_in_the_code(method: Method, similarity: float) -> Method:
    if isinstance(method.aggregate, Tailoring):
        raise ConfigError(
            f"'elastic-merge' with merge_server=code cannot be used with {method.name!r}: its server already "
            "makes a table for every client",
            "leave merge_server out",
        )
    return replace(method, aggregate=SimilarityWeighted(similarity, "code"))
