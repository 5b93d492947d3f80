"""Local training as engines implement it: the task of a round, and the result of a group of clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from solera.core.context import RoundContext
from solera.core.leaf import Params
from solera.core.method import Method
from solera.core.parts import Stage
from solera.core.types import Ints
from solera.core.upload import Sums, Upload
from solera.data.sampling import ClientData
from solera.engine.state import State


@dataclass(frozen=True)
class ClientResult:
    """The result of local training for a group of clients. Only `upload` goes to the server.

    `claims` are the numbers of training items that dishonest clients report.
    """

    clients: Ints
    upload: Upload
    params: Params  # after training; per-item leaves have the same rows as `upload`
    loss: Tensor  # [n_clients], mean over the samples of the last epoch
    claims: Ints | None = None


@dataclass(frozen=True)
class Task:
    """The input of local training. With `news=False`, for clients whose table is not new."""

    method: Method
    data: ClientData
    state: State
    context: RoundContext
    seed: int
    news: bool = True

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the method's update."""
        update = self.method.update
        return update.stages(self.context) if self.news else update.stages_without_news(self.context)

    def by_news(self, clients: Ints) -> list[tuple[Task, Ints]]:
        """The clients with a new table and those without, if they train differently."""
        update = self.method.update
        if not update.told:
            return [(self, clients)]
        new = self.state.shared[update.told].squeeze(-1).cpu().numpy()[clients] != 0
        groups = (self, clients[new]), (replace(self, news=False), clients[~new])
        return [group for group in groups if len(group[1])]


class SummedResult(NamedTuple):
    """What a group of clients sends, added up, with the clients' weights.

    `rows` are the items whose rows they send, `row_counts[c]` of them for client c, and `loss` their losses.
    """

    sums: Sums
    rows: Tensor
    row_counts: Tensor
    loss: Tensor


class LocalTraining:
    """An engine: trains clients from a state, without changing it."""

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        """Train clients and yield the results of groups of clients, in any order."""
        raise NotImplementedError

    def sums(self, task: Task, clients: Ints) -> Iterator[SummedResult]:
        """The sums of groups of clients, in any order, where nobody needs what a single client sends.

        Nothing if the engine has to train single clients.
        """
        return iter(())
