"""Interfaces that parts of a few methods implement beyond those in `choices`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from solera.core.choices import Stage
from solera.core.context import RoundContext
from solera.core.spec import Params


@runtime_checkable
class GathersOwnItems(Protocol):
    """A scorer with a personal leaf that is computed from the rows of the client's training items.

    That is done at the start of a round, from the leaf "items" as the client holds it then.
    """

    @property
    def gathers(self) -> str:
        """The personal leaf."""
        ...

    def gather(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The leaf [clients, ...], from rows [sum(counts), d], client after client."""
        ...


@runtime_checkable
class ViewOfWholeTables(Protocol):
    """A settling view that reads a client's whole tables, before training and after it."""

    @property
    def reports(self) -> tuple[str, ...]:
        """Uploaded shared leaves whose upload is computed by `report` instead of trained."""
        ...

    def prepare(self, tables: Params, context: RoundContext) -> Params:
        """Parameters [clients, ...] for this round, computed from the tables before it; nobody stores them.

        Personal tables have shape [clients, n_items, d], shared ones [n_items, d].
        """
        ...

    def report(self, tables: Params) -> Params:
        """Uploads [clients, n_items, ...] of the leaves in `reports`, from personal tables after training."""
        ...


@runtime_checkable
class HoldsUsers(Protocol):
    """A sifting aggregate whose server holds a vector of every user, draws clients by them and moves them."""

    @property
    def held(self) -> str:
        """The shared leaf, not per item, of which the server holds a version per client."""
        ...

    def draw(self, users: Tensor, count: int, context: RoundContext) -> Tensor:
        """Indices of the round's clients, ascending, given the users' vectors [n, d]."""
        ...

    def pass_on(self, users: Tensor, clients: Tensor, changes: Tensor, context: RoundContext) -> Tensor:
        """All users' vectors after the round, in which `clients` sent these changes [c, d]."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A `Tailoring` aggregate that may give a new table to some of a round's clients only."""

    @property
    def tells(self) -> str:
        """The shared leaf [1] that tells each client whether it has a new table; empty if all have one.

        A method whose view does not declare the leaf is not told.
        """
        ...

    def renewed(self, clients: int, context: RoundContext) -> Tensor:
        """1 for each of the round's clients that has a new table, else 0, [clients]."""
        ...


@runtime_checkable
class TrainsByNews(Protocol):
    """An update that is simpler for clients whose table is not new. It saves time and changes no result."""

    @property
    def told(self) -> str:
        """The shared leaf of `Telling.tells`; empty if nobody is told."""
        ...

    def stages_without_news(self, context: RoundContext) -> tuple[Stage, ...]:
        """Stages with the outcome of `stages`, for clients to whom the leaf tells 0."""
        ...
