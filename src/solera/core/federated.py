"""The common interface of trained and one-round methods, used by runs, devices and servers."""

from __future__ import annotations

from typing import Protocol

from pydantic import BaseModel

from solera.core.closed_form import ClosedForm
from solera.core.method import Method
from solera.core.spec import Home, Leaf

Shapes = dict[str, tuple[int, ...]]
AnyMethod = Method | ClosedForm  # told apart by `one_round`; both implement `FederatedMethod`


class FederatedMethod(Protocol):
    """A method of federated recommendation, trained over many rounds or solved in one."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    @property
    def paper(self) -> str:
        """Authors and year."""
        ...

    @property
    def config(self) -> BaseModel:
        """Options of the method."""
        ...

    @property
    def choices(self) -> dict[str, str]:
        """Labels of the five choices."""
        ...

    @property
    def one_round(self) -> bool:
        """Whether the method is solved in one round, without training."""
        ...

    @property
    def rounds_needed(self) -> int | None:
        """The number of rounds the method takes, or None if the user chooses it."""
        ...

    @property
    def client_share(self) -> float:
        """Clients per round: a fraction of all clients (up to 1), or a number of clients (above 1)."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Trained parameters. Empty for one-round methods."""
        ...

    def select(self, *, home: Home | None = None, per_item: bool | None = None) -> tuple[Leaf, ...]:
        """The leaves with the given home, per item or not."""
        ...

    @property
    def tailored(self) -> frozenset[str]:
        """Shared leaves of which every client has its own version."""
        ...

    @property
    def popularity_power(self) -> float:
        """Exponent of item popularity in negative sampling; 0 samples uniformly."""
        ...

    @property
    def weighted(self) -> bool:
        """Whether clients are weighted by their number of training items."""
        ...

    @property
    def sums_alone(self) -> bool:
        """Whether the server needs only sums over clients, not single uploads."""
        ...

    @property
    def serves_from_history(self) -> bool:
        """Whether a user is served from their history alone, without personal parameters."""
        ...

    def shared_shapes(self, n_items: int) -> Shapes:
        """Shapes of the server's leaves; for a tailored leaf, the shape of one client's version."""
        ...
