"""What trained and solved methods have in common: all that a run, a device or a server may ask of either."""

from __future__ import annotations

from typing import Protocol

from pydantic import BaseModel

from solera.core.closed_form import ClosedForm
from solera.core.method import Method
from solera.core.spec import Home, Leaf

Shapes = dict[str, tuple[int, ...]]
AnyMethod = Method | ClosedForm  # both implement `FederatedMethod`; code that packs uploads tells them apart


class FederatedMethod(Protocol):
    """A method of federated recommendation, trained over many rounds or solved in one."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def paper(self) -> str:
        """Authors and year."""
        ...

    @property
    def config(self) -> BaseModel:
        """Its options."""
        ...

    @property
    def choices(self) -> dict[str, str]:
        """The five choices in words."""
        ...

    @property
    def rounds_needed(self) -> int | None:
        """How many rounds it takes, if that is not for the user to say."""
        ...

    @property
    def client_share(self) -> float:
        """Clients of a round: a share of all (up to 1), or their number (above 1)."""
        ...

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Parameters that are trained; none of a method that is solved."""
        ...

    def select(self, *, home: Home | None = None, per_item: bool | None = None) -> tuple[Leaf, ...]:
        """The leaves of one home, per item or not."""
        ...

    @property
    def tailored(self) -> frozenset[str]:
        """Shared leaves of which every client has its own version."""
        ...

    @property
    def popularity_power(self) -> float:
        """How strongly popular items come up as negatives; 0 for all alike."""
        ...

    @property
    def weighted(self) -> bool:
        """Whether clients count by their number of training items."""
        ...

    @property
    def sums_alone(self) -> bool:
        """Whether the server needs sums over clients and no single uploads."""
        ...

    @property
    def serves_from_history(self) -> bool:
        """Whether a user is served from their history alone, without parameters of their own."""
        ...

    def shared_shapes(self, n_items: int) -> Shapes:
        """What the server holds; of a tailored leaf, one client's version."""
        ...
