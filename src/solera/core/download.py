"""What clients download, in a shorter form than float32 numbers. Implementations are in `coding`."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from solera.core.arrays import Ints
from solera.core.spec import Params


class Download(Protocol):
    """A coding of the tables that clients download. Its state is part of the server's memory."""

    def memory(self, shared: Params, n_clients: int) -> Params:
        """State before the first round."""
        ...

    def renewed(self, memory: Params, shared: Params, row_weights: Tensor) -> Params:
        """State after a round: the new tables, coded, given how many clients changed each row."""
        ...

    def received(self, shared: Params, memory: Params) -> Params:
        """The shared leaves as clients decode them."""
        ...

    @property
    def exact_rows(self) -> bool:
        """Whether clients ask for the rows they train on as they are on the server."""
        ...

    def sent(self, memory: Params, clients: Ints, n_items: int) -> tuple[float, Params]:
        """Bytes that these clients receive on average, and the parts of the state that this changes."""
        ...

    def asked(self, memory: Params, rows: Tensor) -> tuple[int, int]:
        """Bytes, up and down, for those of the given rows that clients must ask for."""
        ...

    def out_of_reach(self, memory: Params) -> Tensor | None:
        """Items that clients cannot score, because they do not receive them. None if there are none."""
        ...
