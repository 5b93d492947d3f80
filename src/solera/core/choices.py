"""The five choices: what a scorer, a view, an update, an aggregate and a wire are.

Parts are written over trailing axes. A leaf of a client has its own shape; the rows of a per-item leaf
have shape [..., n, *shape] for the n items of a batch. Whatever stands in front (nothing in the reference
engine, the clients of a block in the block engine) belongs to the engine and must be left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeGuard, runtime_checkable

from torch import Tensor

from solera.core.context import Batch, RoundContext
from solera.core.spec import Leaf, Params
from solera.core.upload import Totals, Upload


class Scorer(Protocol):
    """How a user scores an item vector."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves it needs."""
        ...

    def score(self, params: Params, items: Tensor) -> Tensor:
        """Scores [..., n] of item vectors [..., n, d]."""
        ...


class View(Protocol):
    """How a client sees the item table."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves it needs."""
        ...

    @property
    def keeps(self) -> tuple[str, ...]:
        """Shared per-item leaves whose locally trained rows the client keeps, and is served with."""
        ...

    def see(self, params: Params) -> Tensor:
        """Item vectors [..., n, d] from the rows of the per-item leaves."""
        ...


class ScorerGradient(Scorer, Protocol):
    """A scorer that knows its own gradient. Optional: without it autograd finds it, more slowly."""

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        """Gradients of the wanted leaves, from the slope [..., n] of the loss by the scores."""
        ...

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        """The gradient by the item vectors, [..., n, d]."""
        ...


class ViewGradient(View, Protocol):
    """A view that knows its own gradient. Optional, like `ScorerGradient`."""

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """Gradients of the view's leaves, from the slope [..., n, d] of the loss by the item vectors.

        Those of the view's own penalty included, if it has one.
        """
        ...


def scorer_knows(scorer: Scorer) -> TypeGuard[ScorerGradient]:
    """Whether a scorer is a `ScorerGradient`; asked at every step, where isinstance would take its time."""
    return hasattr(scorer, "item_gradient")


def view_knows(view: View) -> TypeGuard[ViewGradient]:
    """Whether a view is a `ViewGradient`; asked at every step."""
    return hasattr(view, "gradient")


@runtime_checkable
class ViewPenalty(Protocol):
    """A view with a penalty of its own, added to the loss."""

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor:
        """One penalty per client, [...]."""
        ...


@runtime_checkable
class ViewSettles(Protocol):
    """A view whose outcome becomes one of its leaves: of every item, also of those a client does not touch.

    Such a method trains, stores and sends whole tables.
    """

    @property
    def settles(self) -> str:
        """The personal per-item leaf that takes the outcome."""
        ...

    def settle(self, params: Params) -> Tensor:
        """The leaf's rows [..., n, d] once the view's outcome is final."""
        ...


@runtime_checkable
class ViewDerives(Protocol):
    """A view with leaves that are computed from whole tables, and kept up to date from the touched rows."""

    def derive(self, tables: Params) -> Params:
        """The leaves `derived_from` the given tables [..., n_items, d]."""
        ...

    def observe(self, before: Params, now: Params) -> Params:
        """The personal derived leaves, from the client's rows [..., n, d] before the round and as they are.

        Rows that are padding are zero in both. Called at the start of every epoch and after the last one.
        """
        ...


@dataclass(frozen=True)
class Sgd:
    """p ← S(p − rate · (gradient + reg · p)), where rate = learning_rate · decay^(steps taken this round).

    S is soft-thresholding: it takes `shrink` off every absolute value, as far as there is any.
    """

    learning_rate: float
    reg: float = 0.0
    decay: float = 1.0
    shrink: float = 0.0


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015) with its usual constants, started afresh every round."""

    learning_rate: float
    reg: float = 0.0


@dataclass(frozen=True)
class Move:
    """Leaves that take a step together, on the gradient of the same loss.

    `along` are further leaves that step at the same time with an optimiser of their own.
    """

    leaves: tuple[str, ...]
    optimizer: Sgd | Adam
    along: tuple[Move, ...] = ()

    @property
    def parts(self) -> tuple[Move, ...]:
        """This one and those along with it."""
        return (self, *self.along)

    def renamed(self, names: Mapping[str, str]) -> Move:
        """The same with other leaves in the place of some."""
        leaves = tuple(names.get(name, name) for name in self.leaves)
        return Move(leaves, self.optimizer, tuple(part.renamed(names) for part in self.along))

    def only(self, names: Collection[str]) -> Move | None:
        """The same for some of the leaves; None if it moves none of them."""
        parts = [
            Move(mine, part.optimizer)
            for part in self.parts
            if (mine := tuple(name for name in part.leaves if name in names))
        ]
        return replace(parts[0], along=tuple(parts[1:])) if parts else None

    @property
    def all_leaves(self) -> tuple[str, ...]:
        """The leaves of all parts."""
        return tuple(name for part in self.parts for name in part.leaves)


@dataclass(frozen=True)
class Stage:
    """Some epochs in which, on every batch, the moves are made one after the other.

    `view` replaces the method's view for the stage, where a part of it is yet to come into play. `settle`
    makes the outcome of the method's view final before the first epoch, see `ViewSettles`. A client leaves
    the stage after an epoch whose mean loss differs from the last one's by less than `stop` times that one.
    """

    epochs: int
    moves: tuple[Move, ...]
    view: View | None = None
    settle: bool = False
    stop: float = 0.0


@runtime_checkable
class Merging(Protocol):
    """A view that merges the shared table into the client's own, and can say by which weights it did."""

    def merged_by(self, before: Params, after: Params) -> Tensor:
        """ρ of a round, [..., n, 1] or fewer: 1 takes the shared table's row, 0 leaves the client's.

        `before` and `after` are the leaves as they stand on the clients before and after the round.
        """
        ...


class Update(Protocol):
    """Which leaves move, in what order."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The local training of one round; the upload is taken after the last stage."""
        ...


class Aggregate(Protocol):
    """How the server turns uploads into the next shared state."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    @property
    def weighted(self) -> bool:
        """Whether clients count by their numbers of training items, or all alike."""
        ...

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """The next shared state."""
        ...


@runtime_checkable
class FromSums(Protocol):
    """An aggregate that says whether all it makes is made of the sums of the changes and of constants.

    Not of how many clients touched a row, nor of single uploads: only then does noise on the sums cover all.
    """

    @property
    def from_sums(self) -> bool:
        """Whether that is so."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """An aggregate that remembers something from round to round, on the server and for itself alone."""

    def memory(self, sent: Params) -> Params:
        """What it remembers before the first round, given the shared leaves that clients send changes for.

        `combine` finds it beside the shared leaves, and gives back what is to be remembered. Clients get
        nothing of it.
        """
        ...


@runtime_checkable
class Tailoring(Protocol):
    """An aggregate that gives every client a version of a table of its own, mixed of the clients' tables.

    It needs to see single clients' uploads, so it cannot work under secure aggregation, and its state is of
    the size clients × items.
    """

    @property
    def source(self) -> str:
        """The shared leaf whose versions on the clients are mixed."""
        ...

    @property
    def target(self) -> str:
        """The shared leaf that every client gets its own version of; may be the source."""
        ...

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """Weights [c, c]: row u says what client u's next table is made of.

        `tables` [c, n_items, d] are the round's clients' as they sent them, `weights` [c] their numbers of
        training items.
        """
        ...


@runtime_checkable
class Sifting(Protocol):
    """An aggregate that looks at single clients' uploads before they are added up, and may mistrust some.

    Like one that tailors tables, it cannot work under secure aggregation.
    """

    def sift(self, upload: Upload, weights: Tensor | None, totals: Totals) -> None:
        """Put into the empty totals what is to be believed of the uploads of all the round's clients.

        `weights` [n_clients] are None where all weigh alike. `combine` gets these totals.
        """
        ...


def needs_single_uploads(aggregate: Aggregate) -> bool:
    """Whether sums over clients are not enough for it: it cannot work under secure aggregation."""
    return isinstance(aggregate, Tailoring | Sifting)


@runtime_checkable
class SequenceScorer(Protocol):
    """A scorer that knows a user by the order of their items."""

    def before(self, inputs: Tensor, places: range) -> Tensor:
        """What is remembered before each of these places of a history, from the inputs of its items."""
        ...


@runtime_checkable
class Loss(Protocol):
    """What training minimises, of scores for single items, some of them positives."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    def value(self, scores: Tensor, batch: Batch) -> Tensor:
        """The loss of scores [..., n], summed over the last axis: [...]."""
        ...

    def slope(self, scores: Tensor, batch: Batch) -> Tensor:
        """Its derivative by each score, [..., n]."""
        ...


@runtime_checkable
class NextItemLoss(Protocol):
    """What training minimises, where every item of a sequence is to be found by the items before it."""

    @property
    def label(self) -> str:
        """The choice in a few words."""
        ...

    def value_and_slope(self, scores: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """The loss [..., places] of scores [..., places, n], and its derivative by them; may overwrite them.

        `targets` [..., places] are the rows of the places' own items, `drawn` [..., n] says how often each
        row is a negative.
        """
        ...
