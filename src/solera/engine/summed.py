"""Training whose result is a sum over clients, where nobody needs what a single client sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from solera.core.arrays import Ints
from solera.core.upload import Sums

if TYPE_CHECKING:
    from solera.engine.simulation import Simulation, Task


class SummedResult(NamedTuple):
    """What a group of clients sends, added up, with the clients' weights.

    `rows` are the items whose rows they send, `row_counts[c]` of them for client c, and `loss` their losses.
    """

    sums: Sums
    rows: Tensor
    row_counts: Tensor
    loss: Tensor


@runtime_checkable
class SummedTraining(Protocol):
    """An engine that can add up what clients send, faster than it can train them one by one."""

    def sums(self, task: Task, clients: Ints) -> Iterator[SummedResult] | None:
        """The sums of groups of clients, in any order; None if it has to train single clients."""
        ...


def summed_training(simulation: Simulation, round_: int, clients: Ints) -> Iterator[SummedResult]:
    """The sums of a round's clients; nothing if single uploads are protected, watched or trained alone."""
    chain = simulation.protection
    single = chain.steps or chain.coding or chain.masked or simulation.observer or not len(clients)
    if single or not simulation.adds_up or not isinstance(simulation.train, SummedTraining):
        return iter(())
    return simulation.train.sums(simulation.task(round_), clients) or iter(())
