"""Hooks that show an observer every upload that arrives at the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from solera.core.protection import Step
from solera.core.types import Ints
from solera.core.upload import Upload
from solera.engine.local_training import ClientResult, LocalTraining, Task


class Observer(Protocol):
    """Anyone who is shown uploads as they arrive, after whatever protects them."""

    def __call__(self, round_: int, clients: Ints, upload: Upload) -> None:
        """One group of clients' uploads of a round, the first round being 0."""
        ...


@dataclass(frozen=True)
class Observed(LocalTraining):
    """Local training whose uploads an observer sees. Results are unchanged.

    Put it around everything that changes an upload on its way: what is inside is not seen. The client half of
    a protection of the simulation comes later; the observer sees uploads through it if it is given as `step`.
    """

    train: LocalTraining
    observer: Observer
    step: Step | None = None

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        """The same results."""
        begun = self.step.begin(task.context.round, task.method.leaves, {}) if self.step else None
        for result in self.train(task, clients):
            seen = begun.send(result.clients, result.upload) if begun else result.upload
            self.observer(task.context.round, result.clients, seen)
            yield result


@dataclass(frozen=True)
class Reseeded(LocalTraining):
    """Local training that draws its samples from another seed; what it starts from stays."""

    train: LocalTraining
    seed: int

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        """Results with samples of the other seed."""
        return self.train(replace(task, seed=self.seed), clients)
