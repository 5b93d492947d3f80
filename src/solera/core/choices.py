"""Interfaces of a method's parts: scorer, view, update and aggregate.

Parts operate on trailing axes. A client's leaf has its own shape; the rows of a per-item leaf have shape
[..., n, *shape] for the n items of a batch. Leading axes (none in the reference engine, the clients of a
block in the block engine) belong to the engine, and parts must leave them alone.
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
        """A short label for this choice."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves this part needs."""
        ...

    def score(self, params: Params, items: Tensor) -> Tensor:
        """Scores [..., n] of item vectors [..., n, d]."""
        ...


class View(Protocol):
    """How a client sees the item table."""

    @property
    def label(self) -> str:
        """A short label for this choice."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves this part needs."""
        ...

    @property
    def keeps(self) -> tuple[str, ...]:
        """Shared per-item leaves whose locally trained rows stay on the client and are used to serve it."""
        ...

    def see(self, params: Params) -> Tensor:
        """Item vectors [..., n, d] from the rows of the per-item leaves."""
        ...


class ScorerGradient(Scorer, Protocol):
    """A scorer with an analytic gradient. Optional: without it, the slower autograd is used."""

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        """Gradients by the wanted leaves, given the derivative [..., n] of the loss by the scores."""
        ...

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        """Gradient with respect to the item vectors, [..., n, d]."""
        ...


class ViewGradient(View, Protocol):
    """A view with an analytic gradient. Optional, like `ScorerGradient`."""

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """Gradients of the view's leaves, given the derivative [..., n, d] of the loss by the item vectors.

        Includes the gradient of the view's own penalty, if it has one.
        """
        ...


def scorer_knows(scorer: Scorer) -> TypeGuard[ScorerGradient]:
    """Whether a scorer is a `ScorerGradient`. Called at every step, where isinstance would be slow."""
    return hasattr(scorer, "item_gradient")


def view_knows(view: View) -> TypeGuard[ViewGradient]:
    """Whether a view is a `ViewGradient`. Called at every step."""
    return hasattr(view, "gradient")


@runtime_checkable
class ViewPenalty(Protocol):
    """A view that adds its own penalty to the loss."""

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor:
        """One penalty per client, [...]."""
        ...


@runtime_checkable
class ViewSettles(Protocol):
    """A view whose result is stored in one of its leaves, including items the client does not touch.

    Such a method trains, stores and sends whole tables.
    """

    @property
    def settles(self) -> str:
        """The personal per-item leaf that stores the view's result."""
        ...

    def settle(self, params: Params) -> Tensor:
        """The leaf's rows [..., n, d], computed from the final state of the view."""
        ...


@runtime_checkable
class ViewDerives(Protocol):
    """A view with leaves that are computed from whole tables and updated from the touched rows."""

    def derive(self, tables: Params) -> Params:
        """The leaves `derived_from` the given tables [..., n_items, d]."""
        ...

    def observe(self, before: Params, now: Params) -> Params:
        """Update the personal derived leaves from the client's rows [..., n, d] before the round and now.

        Padding rows are zero in both. Called at the start of every epoch and after the last one.
        """
        ...


@dataclass(frozen=True)
class Sgd:
    """p ← S(p − rate · (gradient + reg · p)), where rate = learning_rate · decay^(steps taken this round).

    S is soft-thresholding: it reduces every absolute value by `shrink`, but not below zero.
    """

    learning_rate: float
    reg: float = 0.0
    decay: float = 1.0
    shrink: float = 0.0


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015) with its usual constants. Its state is reset every round."""

    learning_rate: float
    reg: float = 0.0


@dataclass(frozen=True)
class Move:
    """Leaves that are updated together, with gradients of the same loss.

    `along` lists further leaves that are updated in the same step, each group with its own optimizer.
    """

    leaves: tuple[str, ...]
    optimizer: Sgd | Adam
    along: tuple[Move, ...] = ()

    @property
    def parts(self) -> tuple[Move, ...]:
        """This move and the moves in `along`."""
        return (self, *self.along)

    def renamed(self, names: Mapping[str, str]) -> Move:
        """A copy with some leaves replaced according to `names`."""
        leaves = tuple(names.get(name, name) for name in self.leaves)
        return Move(leaves, self.optimizer, tuple(part.renamed(names) for part in self.along))

    def only(self, names: Collection[str]) -> Move | None:
        """A copy restricted to the given leaves, or None if it moves none of them."""
        parts = [
            Move(mine, part.optimizer)
            for part in self.parts
            if (mine := tuple(name for name in part.leaves if name in names))
        ]
        return replace(parts[0], along=tuple(parts[1:])) if parts else None

    @property
    def all_leaves(self) -> tuple[str, ...]:
        """The leaves of all parts of this move."""
        return tuple(name for part in self.parts for name in part.leaves)


@dataclass(frozen=True)
class Stage:
    """A number of epochs that apply the moves one after the other on every batch.

    `view` replaces the method's view during the stage, for example before one of its components is active.
    `settle` stores the view's result before the first epoch, see `ViewSettles`. A client leaves the stage
    after an epoch whose mean loss differs from the previous one by less than `stop` times the previous one.
    """

    epochs: int
    moves: tuple[Move, ...]
    view: View | None = None
    settle: bool = False
    stop: float = 0.0


@runtime_checkable
class Merging(Protocol):
    """A view that merges the shared table into the client's own table and can report the merging weights."""

    def merged_by(self, before: Params, after: Params) -> Tensor:
        """ρ of a round, [..., n, 1] or fewer: 1 takes the shared table's row, 0 keeps the client's row.

        `before` and `after` are the client's leaves before and after the round.
        """
        ...


class Update(Protocol):
    """Which leaves are trained, and in what order."""

    @property
    def label(self) -> str:
        """A short label for this choice."""
        ...

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The local training of one round. The upload is computed after the last stage."""
        ...


class Aggregate(Protocol):
    """How the server turns uploads into the next shared state."""

    @property
    def label(self) -> str:
        """A short label for this choice."""
        ...

    @property
    def weighted(self) -> bool:
        """Whether clients are weighted by their number of training items; otherwise all weigh the same."""
        ...

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """The next shared state."""
        ...


@runtime_checkable
class FromSums(Protocol):
    """An aggregate that states whether its result depends only on the sums of the changes and on constants.

    Then it depends neither on how many clients touched a row nor on single uploads, and noise on the sums
    protects the whole result.
    """

    @property
    def from_sums(self) -> bool:
        """Whether the result depends only on sums."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """An aggregate that keeps server-side state between rounds."""

    def memory(self, sent: Params) -> Params:
        """The initial state, given the shared leaves that clients send changes for.

        `combine` receives the state beside the shared leaves and returns the next state. Clients never
        receive it.
        """
        ...


@runtime_checkable
class Tailoring(Protocol):
    """An aggregate that gives every client its own version of a table, mixed from the clients' tables.

    It needs single clients' uploads, so it cannot work under secure aggregation. Its state has size
    clients × items.
    """

    @property
    def source(self) -> str:
        """The shared leaf whose client versions are mixed."""
        ...

    @property
    def target(self) -> str:
        """The shared leaf of which every client receives its own version. May equal the source."""
        ...

    @property
    def sketchable(self) -> bool:
        """Whether `mixing` only uses inner products of tables, so that sketches of them will do."""
        ...

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """Mixing weights [c, c]: row u holds the weights of all clients' tables in client u's next table.

        `tables` [c, n_items, d] are the tables that the round's clients sent, `weights` [c] their numbers of
        training items.
        """
        ...


@runtime_checkable
class Sifting(Protocol):
    """An aggregate that inspects single clients' uploads before summing and may limit or discard some.

    Like `Tailoring`, it cannot work under secure aggregation.
    """

    def sift(self, upload: Upload, weights: Tensor | None, totals: Totals) -> None:
        """Fill the empty totals with the accepted part of the uploads of all clients of the round.

        `weights` [n_clients] is None where all clients weigh the same. `combine` receives these totals.
        """
        ...


def needs_single_uploads(aggregate: Aggregate) -> bool:
    """Whether the aggregate needs single uploads, so that it cannot work under secure aggregation."""
    return isinstance(aggregate, Tailoring | Sifting)


@runtime_checkable
class SequenceScorer(Protocol):
    """A scorer that represents a user by a memory of their item sequence. No user vector is stored."""

    def remember(self, shared: Params, items: Tensor, lengths: Tensor) -> Tensor:
        """Memories [clients, d] of whole histories, given the items of all, one client after the other."""
        ...
