"""Parts shared by several methods."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from solera.core.choices import Adam, Move, Sgd, Stage
from solera.core.context import Batch, RoundContext
from solera.core.spec import Home, Init, Leaf, Params
from solera.core.upload import Totals

_PIECE_ROWS = 65_536  # of a table that are averaged at a time


def inner(vector: Tensor, items: Tensor) -> Tensor:
    """⟨vector, item⟩ for every item: [..., d] and [..., n, d] (or [n, d], the same for all) to [..., n]."""
    if items.dim() == 2 and vector.dim() > 1:
        return vector @ items.T
    return (items @ vector.unsqueeze(-1)).squeeze(-1)


def weighted_sum(weights: Tensor, items: Tensor) -> Tensor:
    """Σ weight · item over the items: [..., n] and [..., n, d] to [..., d]."""
    return (weights.unsqueeze(-2) @ items).squeeze(-2)


@dataclass(frozen=True)
class Dot:
    """⟨user, item⟩ with a personal user vector."""

    embedding_size: int
    start: Init = Init.NORMAL
    label: str = "dot with user vector"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The user vector."""
        d = self.embedding_size
        return (Leaf("user", (d,), Home.PERSONAL, self.start, fan_in=d),)

    def score(self, params: Params, items: Tensor) -> Tensor:
        """Σ_k user_k · item_k."""
        return inner(params["user"], items)

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        """Σ slope · item, for the user vector."""
        return {"user": weighted_sum(slope, items)} if "user" in wanted else {}

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        """slope · user, the gradient by each item vector."""
        return slope.unsqueeze(-1) * params["user"].unsqueeze(-2)


@dataclass(frozen=True)
class PersonalLinear:
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
        """Σ_k w_k · item_k + b."""
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
class ItemTable:
    """One item table, used directly. `home` says where it is, `keep` whether trained rows stay there."""

    embedding_size: int
    home: Home = Home.SHARED
    keep: bool = False

    @property
    def label(self) -> str:
        """Shared, shared and kept, or personal."""
        if self.home is Home.PERSONAL:
            return "personal table"
        return "shared, fine-tuned and kept" if self.keep else "shared as it is"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The item table."""
        shared = self.home is Home.SHARED
        return (Leaf("items", (self.embedding_size,), self.home, per_item=True, upload=shared),)

    @property
    def keeps(self) -> tuple[str, ...]:
        """The table, if it is fine-tuned and kept."""
        return ("items",) if self.keep else ()

    def see(self, params: Params) -> Tensor:
        """The rows of the table."""
        return params["items"]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The incoming gradient, unchanged."""
        return {"items": slope}


@dataclass(frozen=True)
class Joint:
    """Train all leaves together in every step."""

    leaves: tuple[str, ...]
    optimizer: type[Sgd | Adam] = Sgd
    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """One stage with one move."""
        optimizer = self.optimizer(context.hyper["learning_rate"], context.hyper["reg"])
        return (Stage(context.local_epochs, (Move(self.leaves, optimizer),)),)


@dataclass(frozen=True)
class ThreeRates:
    """Train everything together by SGD, with the three rates in the public code of PFedRec's authors.

    `slow` leaves have η, `fast` ones η · `item_rate`, and the items η · `item_rate` · n_items.
    """

    slow: tuple[str, ...]
    fast: tuple[str, ...] = ()
    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """One stage with one move."""
        hyper = context.hyper
        rate, reg = hyper["learning_rate"], hyper["reg"]
        faster = rate * hyper["item_rate"]
        along = [Move(("items",), Sgd(faster * context.n_items, reg))]
        if self.fast:
            along.append(Move(self.fast, Sgd(faster, reg)))
        return (Stage(context.local_epochs, (Move(self.slow, Sgd(rate, reg), tuple(along)),)),)


@dataclass(frozen=True)
class Mean:
    """The mean of the clients' tables: shared + Σ weight · change / Σ weight.

    All clients weigh the same, or with `weighted` in proportion to their number of training items. With
    `by_row`, an item's row is averaged over the clients who touched it, not over all.
    """

    weighted: bool = False
    by_row: bool = False

    @property
    def label(self) -> str:
        """Mean, or weighted mean, over all clients or row by row."""
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
class Nothing:
    """No aggregation: nothing is uploaded."""

    label: str = "none"
    weighted: bool = False

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """The shared state, unchanged."""
        return shared
