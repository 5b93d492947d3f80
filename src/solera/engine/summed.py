"""Training whose result is a sum over clients, where nobody needs what a single client sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from solera.core.arrays import Ints
from solera.core.upload import Sums

Task_contra = TypeVar("Task_contra", contravariant=True)  # the input of training, see `simulation`


class SummedResult(NamedTuple):
    """What a group of clients sends, added up, with the clients' weights.

    `rows` are the items whose rows they send, `row_counts[c]` of them for client c, and `loss` their losses.
    """

    sums: Sums
    rows: Tensor
    row_counts: Tensor
    loss: Tensor


@runtime_checkable
class SummedTraining(Protocol[Task_contra]):
    """An engine that can add up what clients send, faster than it can train them one by one."""

    def sums(self, task: Task_contra, clients: Ints) -> Iterator[SummedResult] | None:
        """The sums of groups of clients, in any order; None if it has to train single clients."""
        ...


def summed_training(train: object, task: Task_contra, clients: Ints) -> Iterator[SummedResult]:
    """The sums of some clients; nothing if the engine has to train single ones."""
    found = train.sums(task, clients) if isinstance(train, SummedTraining) and len(clients) else None
    return found or iter(())
