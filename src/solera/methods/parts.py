"""Parts shared by several methods, and wrappers that change a method's part.

Clients with a local table (`LOCAL`) keep their own item table beside the shared one, which is aggregated from
them. They download the shared table "items" but do not train it. They train "items.local", which has the same
initial values, stays on the client between rounds, and is what they upload. Any method with a shared item
table can be converted: its parts then use the client's table in place of "items".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import logsigmoid

from solera.core.context import Batch, MethodConfig, RoundContext, Schedule, Scheduled
from solera.core.errors import ConfigError
from solera.core.leaf import ITEMS, Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam, Aggregate, Loss, Move, Scorer, Sgd, Stage, Update, View
from solera.core.types import Floats, Ints
from solera.core.upload import Totals
from solera.math.fading import Timing, fading

_PIECE_ROWS = 65_536  # of a table that are averaged at a time


class FactorizationConfig(MethodConfig):
    """Options of a factorization that is trained by Adam."""

    embedding_size: int = Field(default=16, ge=1, description="length of user and item vectors")
    learning_rate: Scheduled = Field(
        default=Schedule(start=0.01), description="step size of user and item vectors"
    )
    local_epochs: int = Field(default=10, ge=1, description="passes over a client's own data per round")


def inner(vector: Tensor, items: Tensor) -> Tensor:
    """⟨vector, item⟩ for every item: [..., d] and [..., n, d] (or [n, d], the same for all) to [..., n]."""
    if items.dim() == 2 and vector.dim() > 1:
        return vector @ items.T
    return (items @ vector.unsqueeze(-1)).squeeze(-1)


def weighted_sum(weights: Tensor, items: Tensor) -> Tensor:
    """Σ weight · item over the items: [..., n] and [..., n, d] to [..., d]."""
    return (weights.unsqueeze(-2) @ items).squeeze(-2)


@dataclass(frozen=True)
class Dot(Scorer):
    """⟨user, item⟩ with a personal user vector."""

    embedding_size: int
    start: Init = Init.NORMAL
    label: str = "dot with user vector"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        d = self.embedding_size
        return (Leaf("user", (d,), Home.PERSONAL, self.start, fan_in=d),)

    def score(self, params: Params, items: Tensor) -> Tensor:
        return inner(params["user"], items)

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        return {"user": weighted_sum(slope, items)} if "user" in wanted else {}

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        """slope · user, the gradient by each item vector."""
        return slope.unsqueeze(-1) * params["user"].unsqueeze(-2)


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Binary cross-entropy of positives against negatives, with each item scored independently."""

    label: str = "binary cross-entropy"

    def value(self, scores: Tensor, batch: Batch) -> Tensor:
        """Σ weight · log(1 + e^score) − positive · score, over the last axis."""
        # Not softplus: torch cuts off its gradient at 20.
        return -(logsigmoid(-scores) * batch.weights + batch.positives * scores).sum(-1)

    def slope(self, scores: Tensor, batch: Batch) -> Tensor:
        """weight · σ(score) − positive."""
        return torch.sigmoid(scores).mul_(batch.weights).sub_(batch.positives)


@dataclass(frozen=True)
class PersonalLinear(Scorer):
    """A personal linear layer: ⟨w, item⟩ + b."""

    embedding_size: int
    label: str = "personal linear layer"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Weight and bias, initialized like an ordinary linear layer."""
        d = self.embedding_size
        return (
            Leaf("score.weight", (d,), Home.PERSONAL, Init.LINEAR, fan_in=d),
            Leaf("score.bias", (1,), Home.PERSONAL, Init.LINEAR, fan_in=d),
        )

    def score(self, params: Params, items: Tensor) -> Tensor:
        return inner(params["score.weight"], items) + params["score.bias"]

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        """Σ slope · item for w, Σ slope for b, where slope is the derivative of the loss by the scores."""
        found = {}
        if "score.weight" in wanted:
            found["score.weight"] = weighted_sum(slope, items)
        if "score.bias" in wanted:
            found["score.bias"] = slope.sum(-1, keepdim=True)
        return found

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        """slope · w, the gradient by each item vector."""
        return slope.unsqueeze(-1) * params["score.weight"].unsqueeze(-2)


@dataclass(frozen=True)
class ItemTable(View):
    """One item table, used directly. `home` says where it is, `keep` whether trained rows stay there."""

    embedding_size: int
    home: Home = Home.SHARED
    keep: bool = False

    @property
    def label(self) -> str:
        if self.home is Home.PERSONAL:
            return "personal table"
        return "shared, fine-tuned and kept" if self.keep else "shared as it is"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        shared = self.home is Home.SHARED
        return (Leaf("items", (self.embedding_size,), self.home, per_item=True, upload=shared),)

    @property
    def keeps(self) -> tuple[str, ...]:
        return ("items",) if self.keep else ()

    def see(self, params: Params) -> Tensor:
        return params["items"]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        return {"items": slope}


@dataclass(frozen=True)
class Joint(Update):
    """Train all leaves together in every step."""

    leaves: tuple[str, ...]
    optimizer: type[Sgd | Adam] = Sgd
    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        optimizer = self.optimizer(context.hyper["learning_rate"], context.hyper["reg"])
        return (Stage(context.local_epochs, (Move(self.leaves, optimizer),)),)


@dataclass(frozen=True)
class ThreeRates(Update):
    """Train everything together by SGD, with the three rates in the public code of PFedRec's authors.

    `slow` leaves have η, `fast` ones η · `item_rate`, and the items η · `item_rate` · n_items.
    """

    slow: tuple[str, ...]
    fast: tuple[str, ...] = ()
    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        hyper = context.hyper
        rate, reg = hyper["learning_rate"], hyper["reg"]
        faster = rate * hyper["item_rate"]
        along = [Move(("items",), Sgd(faster * context.n_items, reg))]
        if self.fast:
            along.append(Move(self.fast, Sgd(faster, reg)))
        return (Stage(context.local_epochs, (Move(self.slow, Sgd(rate, reg), tuple(along)),)),)


@dataclass(frozen=True)
class Mean(Aggregate):
    """The mean of the clients' tables: shared + Σ weight · change / Σ weight.

    All clients weigh the same, or with `weighted` in proportion to their number of training items. With
    `by_row`, an item's row is averaged over the clients who touched it, not over all.
    """

    weighted: bool = False
    by_row: bool = False

    @property
    def label(self) -> str:
        mean = "weighted mean" if self.weighted else "mean"
        return f"{mean} over the clients that touch a row" if self.by_row else mean

    @property
    def from_sums(self) -> bool:
        """True unless rows are divided by the number of clients who touched them."""
        return not self.by_row

    def change(self, totals: Totals, name: str, rows: slice | None = None) -> Tensor:
        """The mean change of one leaf, in double precision; zero where nobody changed anything.

        With `rows`, only these rows of a table.
        """
        change, weight = totals.leaf(name)
        if rows is not None:
            change, weight = change[rows], weight[rows]
        if not self.by_row:
            return change / totals.weight
        weight = weight.view(*weight.shape, *[1] * (change.dim() - weight.dim()))
        return torch.where(weight > 0, change / weight, 0.0)

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """FedAvg on all leaves in `shared`. A row that nobody touched does not change."""
        return shared | {
            name: self._moved(shared[name], totals, name) for name in totals.names if name in shared
        }

    def _moved(self, values: Tensor, totals: Totals, name: str) -> Tensor:
        """The next values of a leaf, in pieces: a large table has no copy in double precision."""
        if len(totals.row_weights) <= _PIECE_ROWS or not totals.of_rows(name):
            return (values.double() + self.change(totals, name)).to(values.dtype)
        moved = torch.empty_like(values)
        for begin in range(0, len(values), _PIECE_ROWS):
            rows = slice(begin, begin + _PIECE_ROWS)
            moved[rows] = values[rows].double() + self.change(totals, name, rows)
        return moved


@dataclass(frozen=True)
class OfMean(Aggregate):
    """Base of aggregates that take the mean of the clients' changes and do something else with it."""

    mean: Mean

    @property
    def label(self) -> str:
        return self.mean.label

    @property
    def weighted(self) -> bool:
        return self.mean.weighted

    @property
    def from_sums(self) -> bool:
        return self.mean.from_sums


@dataclass(frozen=True)
class Nothing(Aggregate):
    """No aggregation: nothing is uploaded."""

    label: str = "none"

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        return shared


def personal(scorer: Scorer) -> Scorer:
    """The scorer with all its leaves on the client and none of them sent. Unchanged if it has no leaves."""
    if not scorer.leaves:
        return scorer
    return PersonalScorer(scorer)


@dataclass(frozen=True)
class PersonalScorer(Scorer):
    """A scorer whose leaves are all personal."""

    inner: Scorer

    def does(self, hook: str) -> bool:
        return self.inner.does(hook)

    @property
    def label(self) -> str:
        own = all(leaf.home is Home.PERSONAL for leaf in self.inner.leaves)
        return self.inner.label if own else f"personal, not {self.inner.label}"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The inner scorer's leaves, all personal and none of them sent."""
        return tuple(replace(leaf, home=Home.PERSONAL, upload=False) for leaf in self.inner.leaves)

    def score(self, params: Params, items: Tensor) -> Tensor:
        return self.inner.score(params, items)

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        return self.inner.gradient(params, items, slope, wanted)

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        return self.inner.item_gradient(params, slope)


@dataclass(frozen=True)
class Around(View):
    """Base class of a view that wraps another one and shows it a different table as "items"."""

    inner: View

    def does(self, hook: str) -> bool:
        """A wrapper has an analytic gradient only if the inner view has one."""
        return super().does(hook) and (hook != "gradient" or self.inner.does(hook))

    @property
    def keeps(self) -> tuple[str, ...]:
        return self.inner.keeps

    def table(self, params: Params) -> Tensor:
        """The table that the inner view sees as "items"."""
        return params[ITEMS]

    def inside(self, params: Params) -> Params:
        """The parameters that are passed to the inner view."""
        return params | {ITEMS: self.table(params)}

    def see(self, params: Params) -> Tensor:
        return self.inner.see(self.inside(params))

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor | float:
        return self.inner.penalty(self.inside(params), batch, context) if self.inner.does("penalty") else 0.0

    def inner_gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradients. "items" is the gradient by the table it is shown."""
        return self.inner.gradient(self.inside(params), slope, batch, context)


@dataclass(frozen=True)
class Kept(Around):
    """A view whose shared item table is fine-tuned, kept and served."""

    @property
    def label(self) -> str:
        return f"{self.inner.label}, fine-tuned and kept"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return self.inner.leaves

    @property
    def keeps(self) -> tuple[str, ...]:
        """The leaves the inner view keeps, and the item table."""
        return (*self.inner.keeps, ITEMS)

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        return self.inner_gradient(params, slope, batch, context)


@dataclass(frozen=True)
class OwnHistory:
    """The memory of a one-round method: the own items, which fade with each of the decays."""

    decays: tuple[float, ...]
    timing: Timing | None = None
    label: str = "own history, fading"

    @property
    def channels(self) -> int:
        """One for each decay."""
        return len(self.decays)

    def weights(self, ages: Ints, gaps: Floats | None = None) -> Floats:
        return fading(self.decays, ages, gaps, self.timing)


class TablePerClient(Aggregate):
    """Base of aggregates that mix a table for every client. All other leaves are averaged."""

    source: str = ITEMS
    target: str = ITEMS

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """The mean of leaves of which clients have no version of their own."""
        return Mean(weighted=self.weighted).combine(shared, totals, context)


LOCAL = "items.local"


def require_shared_table(method: Method, plugin: str) -> None:
    """Raise an error for a method that has no shared item table, or already has a local one."""
    tables = {leaf.name: leaf for leaf in method.leaves if leaf.per_item}
    if any(leaf.fades_with for leaf in tables.values()):
        raise ConfigError(
            f"{plugin!r} cannot be used with {method.name!r} if weight decay acts on all rows: it changes "
            "how tables are trained and sent",
            "add -o decay=touched",
        )
    if LOCAL in tables:
        raise ConfigError(
            f"{plugin!r} cannot be used with {method.name!r}: its clients already have a table of their own "
            "beside the shared one, and only one rule can set it",
            "leave one of them out",
        )
    if ITEMS not in tables or tables[ITEMS].home is not Home.SHARED or not tables[ITEMS].upload:
        raise ConfigError(
            f"{plugin!r} cannot be used with {method.name!r}: it has no shared item table that clients "
            "train and send, so there is nothing to mix with",
            "choose a method whose view has one; `solera methods` shows the views",
        )


def with_local_table(leaves: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
    """A view's leaves, with an added local table that is trained and sent in place of the shared one."""
    (items,) = (leaf for leaf in leaves if leaf.name == ITEMS)
    local = replace(items, name=LOCAL, home=Home.PERSONAL, upload=False, feeds=ITEMS)
    return (*(replace(leaf, upload=False) if leaf is items else leaf for leaf in leaves), local)


def on_local_table(stage: Stage, view: View) -> Stage:
    """A stage that trains and sees the local table instead of the shared one."""
    return replace(
        stage,
        moves=tuple(move.renamed({ITEMS: LOCAL}) for move in stage.moves),
        view=OnLocal(stage.view or view),
    )


@dataclass(frozen=True)
class OnLocal(Around):
    """A view that uses the client's local table as "items"."""

    @property
    def label(self) -> str:
        return f"{self.inner.label}, on the local table"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return with_local_table(self.inner.leaves)

    @property
    def keeps(self) -> tuple[str, ...]:
        """The leaves the inner view keeps, except the item table, which is the client's own."""
        return tuple(name for name in self.inner.keeps if name != ITEMS)

    def table(self, params: Params) -> Tensor:
        return params[LOCAL]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradients, with the gradient by "items" assigned to the local table."""
        found = self.inner_gradient(params, slope, batch, context)
        return {LOCAL if name == ITEMS else name: value for name, value in found.items()}
