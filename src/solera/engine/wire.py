"""What happens to single uploads on their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from solera.core.randomness import Purpose, client_keys
from solera.data.ragged import Ints
from solera.engine.simulation import ClientResult, LocalTraining, Task
from solera.privacy.dp.laplace import PaperLaplace


@dataclass(frozen=True)
class OverWire:
    """Local training whose uploads get noise, the same in every engine; what clients keep has none."""

    train: LocalTraining
    wire: PaperLaplace

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        """The same results with other uploads."""
        for result in self.train(task, clients):
            keys = client_keys(task.seed, Purpose.NOISE, task.context.round, result.clients)
            yield replace(result, upload=self.wire.upload(result.upload, task.method.leaves, keys))
