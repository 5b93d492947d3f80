"""The base classes of a method's parts: scorer, view, loss, update and aggregate.

A part overrides the hooks it needs. All others do nothing, so engines call them for every method.

Parts operate on trailing axes. A client's leaf has its own shape; the rows of a per-item leaf have shape
[..., n, *shape] for the n items of a batch. Leading axes (none in the reference engine, the clients of a
block in the block engine) belong to the engine, and parts must leave them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from torch import Tensor

from solera.core.context import Batch, RoundContext
from solera.core.leaf import Leaf, Params
from solera.core.upload import Totals, Upload

# What clients learn from: single items, the order of their items, or a window of it; see `Scorer`.
LearnsFrom = Literal["items", "sequences", "windows"]
Drop = Callable[[Tensor], Tensor]  # dropout of vectors [clients, length, width]


class Part:
    """One of the five choices of a method."""

    @property
    def label(self) -> str:
        """A short label for this choice."""
        return type(self).__name__

    def does(self, hook: str) -> bool:
        """Whether this part overrides a hook that does nothing by default."""
        kind: Any = type(self)
        return _overrides(kind, hook)


@cache
def _overrides(kind: Any, hook: str) -> bool:
    base = next(each for each in kind.__mro__ if Part in each.__bases__)
    return bool(getattr(kind, hook) is not getattr(base, hook))


class Scorer(Part):
    """How a user scores an item vector.

    Scorers `learn_from` items, and keep what they learn of a user in personal leaves; or from sequences of
    items or windows of them, and represent a user by a memory of the own history.
    """

    learns_from: LearnsFrom = "items"
    gathers: str = ""  # a personal leaf that `gather` computes at the start of every round

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves this part needs."""
        return ()

    def score(self, params: Params, items: Tensor) -> Tensor:
        """Scores [..., n] of item vectors [..., n, d]."""
        raise NotImplementedError

    def gradient(self, params: Params, items: Tensor, slope: Tensor, wanted: Collection[str]) -> Params:
        """Gradients by the wanted leaves, given the derivative [..., n] of the loss by the scores.

        Optional, together with `item_gradient`: without them, the slower autograd is used.
        """
        raise NotImplementedError

    def item_gradient(self, params: Params, slope: Tensor) -> Tensor:
        """Gradient with respect to the item vectors, [..., n, d]."""
        raise NotImplementedError

    def gather(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The gathered leaf [clients, ...], from the rows of the clients' training items.

        `rows` [sum(counts), d] are of the leaf "items" as the clients hold it then, client after client.
        """
        raise NotImplementedError

    def remember(self, shared: Params, items: Tensor, lengths: Tensor) -> Tensor:
        """Memories [clients, d] of whole histories, given the items of all, one client after the other."""
        raise NotImplementedError

    def before(self, inputs: Tensor, places: range) -> Tensor:
        """Memories [..., places, d] before each position of a sequence, from the inputs [..., L, d]."""
        raise NotImplementedError

    def input_gradient(self, slope: Tensor, places: range) -> Tensor:
        """Gradient with respect to the inputs, [..., L, d], given the gradient by the output of `before`."""
        raise NotImplementedError

    @property
    def max_length(self) -> int:
        """Items that are read at once, of those that learn from windows; 0 for all others."""
        return 0

    def states(self, params: Params, items: Tensor, drop: Drop | None = None) -> Tensor:
        """Memories [clients, length + 1, d] before the first item of [clients, length] and after each."""
        raise NotImplementedError


class View(Part):
    """How a client sees the item table.

    A method with a view that `settles` a table trains, stores and sends whole tables.
    """

    settles: str = ""  # the personal per-item leaf that `settle` computes
    reports: tuple[str, ...] = ()  # uploaded shared leaves that `report` computes, instead of training

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves this part needs."""
        return ()

    @property
    def keeps(self) -> tuple[str, ...]:
        """Shared per-item leaves whose locally trained rows stay on the client and are used to serve it."""
        return ()

    def see(self, params: Params) -> Tensor:
        """Item vectors [..., n, d] from the rows of the per-item leaves."""
        raise NotImplementedError

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """Gradients of the view's leaves, given the derivative [..., n, d] of the loss by the item vectors.

        Includes the gradient of the view's own penalty, if it has one. Optional, like that of a scorer.
        """
        raise NotImplementedError

    def penalty(self, params: Params, batch: Batch, context: RoundContext) -> Tensor | float:
        """A penalty added to the loss, one per client, [...]."""
        return 0.0

    def settle(self, params: Params) -> Tensor:
        """The leaf's rows [..., n, d], from the final state of the view, also of items without training."""
        raise NotImplementedError

    def derive(self, tables: Params) -> Params:
        """The leaves `derived_from` the given tables [..., n_items, d]."""
        return {}

    def observe(self, before: Params, now: Params) -> Params:
        """Update the personal derived leaves from the client's rows [..., n, d] before the round and now.

        Padding rows are zero in both. Called at the start of every epoch and after the last one.
        """
        return {}

    def prepare(self, tables: Params, context: RoundContext) -> Params:
        """Parameters [clients, ...] for this round, from whole tables before it; nobody stores them.

        Personal tables have shape [clients, n_items, d], shared ones [n_items, d].
        """
        return {}

    def report(self, tables: Params) -> Params:
        """Uploads [clients, n_items, ...] of the leaves in `reports`, from personal tables after training."""
        return {}


class Loss(Part):
    """A training loss, for scorers that learn from the same."""

    learns_from: LearnsFrom = "items"

    def value(self, scores: Tensor, batch: Batch) -> Tensor:
        """Items: the loss of scores [..., n], summed over the last axis, [...]."""
        raise NotImplementedError

    def slope(self, scores: Tensor, batch: Batch) -> Tensor:
        """Items: the derivative of the loss by each score, [..., n]."""
        raise NotImplementedError

    def value_and_slope(self, scores: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Sequences: the loss [..., places] of scores [..., places, n], and its derivative by them.

        `targets` [..., places] are the rows of the target items, `drawn` [..., n] counts how often each row
        is a negative. The scores may be overwritten.
        """
        raise NotImplementedError

    def drawn(self, context: RoundContext) -> Tensor | None:
        """Windows: the negatives of a round, ascending; None stands for all items."""
        return None

    def losses(
        self, states: Tensor, items: Tensor, targets: Tensor, weights: Tensor, negatives: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Windows: the weighted sum of the losses of states [n, d], and single losses without gradients.

        `items` are all item vectors, `targets` [n] the items to predict.
        """
        raise NotImplementedError


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
    `settle` stores the view's result before the first epoch, see `View.settle`. A client leaves the stage
    after an epoch whose mean loss differs from the previous one by less than `stop` times the previous one.
    """

    epochs: int
    moves: tuple[Move, ...]
    view: View | None = None
    settle: bool = False
    stop: float = 0.0


class Update(Part):
    """Which leaves are trained, and in what order."""

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The local training of one round. The upload is computed after the last stage."""
        raise NotImplementedError

    @property
    def told(self) -> str:
        """The shared leaf of `Aggregate.tells`, if training is simpler for clients to whom it says 0."""
        return ""

    def stages_without_news(self, context: RoundContext) -> tuple[Stage, ...]:
        """Stages with the outcome of `stages`, for these clients. They save time and change no result."""
        return self.stages(context)


class Aggregate(Part):
    """How the server turns uploads into the next shared state.

    Aggregates with a `target` or a `sift` need single clients' uploads, so they cannot work under secure
    aggregation; all others need sums alone.

    An aggregate may mix the clients' versions of the shared leaf `source` into a version of the shared leaf
    `target` for every client; both may be the same leaf. The server's state then has size clients × items. It
    may hold a version per client of a shared leaf that is not per item, `held`.
    """

    source: str = ""
    target: str = ""
    held: str = ""

    @property
    def weighted(self) -> bool:
        """Whether clients are weighted by their number of training items; otherwise all weigh the same."""
        return False

    @property
    def from_sums(self) -> bool:
        """Whether the result depends only on the sums of the changes and on constants.

        Then it depends neither on how many clients touched a row nor on single uploads, and noise on the sums
        protects the whole result.
        """
        return False

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """The next shared state."""
        raise NotImplementedError

    def memory(self, sent: Params) -> Params:
        """The initial state that the server keeps between rounds, given the leaves that clients send.

        `combine` receives the state beside the shared leaves and returns the next state. Clients never
        receive it.
        """
        return {}

    def sift(self, upload: Upload, weights: Tensor | None, totals: Totals) -> None:
        """Fill the empty totals with the accepted part of the uploads of all clients of the round.

        Optional. `weights` [n_clients] is None where all clients weigh the same. `combine` receives these
        totals.
        """
        raise NotImplementedError

    @property
    def sketchable(self) -> bool:
        """Whether `mixing` only uses inner products of tables, so that sketches of them will do."""
        return False

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """Mixing weights [c, c]: row u holds the weights of all clients' tables in client u's next table.

        `tables` [c, n_items, d] are the tables that the round's clients sent, `weights` [c] their numbers of
        training items.
        """
        raise NotImplementedError

    @property
    def tells(self) -> str:
        """The shared leaf [1] that tells each client whether it has a new table; empty if all have one.

        A method whose view does not declare the leaf is not told.
        """
        return ""

    def renewed(self, clients: int, context: RoundContext) -> Tensor:
        """1 for each of the round's clients that has a new table, else 0, [clients]."""
        raise NotImplementedError

    def draw(self, users: Tensor, count: int, context: RoundContext) -> Tensor:
        """Indices of the round's clients, ascending, given the held vectors of all users [n, d]."""
        raise NotImplementedError

    def pass_on(self, users: Tensor, clients: Tensor, changes: Tensor, context: RoundContext) -> Tensor:
        """All users' vectors after the round, in which `clients` sent these changes [c, d]."""
        raise NotImplementedError

    @property
    def sifts(self) -> bool:
        """Whether `sift` adds up the uploads."""
        return self.does("sift")

    @property
    def needs_single_uploads(self) -> bool:
        """Whether the server needs more than sums over clients."""
        return bool(self.target) or self.sifts
