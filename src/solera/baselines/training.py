"""What baselines are, and common parts of the trained ones: options, samples, and the loop over batches.

The samples are those of the federated methods, with an epoch in place of a round: every training item once,
and for each of them newly drawn negatives that the protocol allows. Only the order differs, because all
users' samples are shuffled together. No epoch is selected: the model after the last one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from solera.core.frozen import Frozen
from solera.core.randomness import Purpose, generator
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData, sample

Columns = tuple[Tensor, Tensor, Tensor]


class Epoch(NamedTuple):
    """The report after every epoch. `loss` is its mean, if there is one."""

    done: int
    epochs: int
    loss: float | None


OnEpoch = Callable[[Epoch], None]


class Baseline:
    """A fitted baseline."""

    refreshes: ClassVar[str] = ""  # how newer items reach a model that does not read them in a history

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """Scores [len(users), n_items]. `history` is what each user of the data has at that time."""
        raise NotImplementedError

    def refreshed(self, split: Split, epochs: int) -> Baseline:
        """The model that also knows newer training items of a split, if `refreshes` says how.

        These are the items it was trained on and newer ones. The model itself does not change.
        """
        raise NotImplementedError


class TrainedConfig(Frozen):
    """Settings of every trained baseline. Each may change defaults and add its own."""

    embedding_size: int = Field(default=32, ge=1, description="length of user and item vectors")
    learning_rate: float = Field(default=0.005, gt=0, description="step size of Adam")
    reg: float = Field(
        default=0.007, ge=0, description="weight of the squared length of the vectors of a sample"
    )
    epochs: int = Field(default=100, ge=1, description="passes over everybody's training items")
    batch_size: int = Field(default=4096, ge=1, description="samples per step")
    negatives: int = Field(default=4, ge=1, description="negatives drawn per positive, anew every epoch")


class Draws:
    """All users' samples, epoch by epoch."""

    def __init__(self, split: Split, negatives: int, seed: int) -> None:
        self._data = ClientData(split.train, split.excluded, split.data.n_items)
        self._negatives = negatives
        self._seed = seed

    def labelled(self, epoch: int) -> Columns:
        """Users, items, and labels: 1 for positives and 0 for negatives."""
        users, items, positive = self._sample(epoch)
        order = generator(self._seed, Purpose.SHUFFLE, epoch).permutation(len(users))
        return _tensors(users[order], items[order], positive[order].astype(np.float32))

    def pairs(self, epoch: int) -> Columns:
        """Users, positives and negatives. Every negative occurs once, with a random positive of its user."""
        users, items, positive = self._sample(epoch)
        random = generator(self._seed, Purpose.SHUFFLE, epoch)
        users, rivals, items = users[~positive], items[~positive], np.repeat(items[positive], self._negatives)
        rivals = rivals[np.lexsort((random.random(len(rivals)), users))]  # shuffles within each user
        order = random.permutation(len(users))
        return _tensors(users[order], items[order], rivals[order])

    def _sample(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        clients = np.arange(self._data.n_clients)
        samples = sample(self._data, clients, self._negatives, self._seed, epoch)
        return samples.items.rows, samples.items.values, samples.are_positive


def _tensors(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> Columns:
    return torch.from_numpy(first), torch.from_numpy(second), torch.from_numpy(third)


def train(
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    draw: Callable[[int], Columns],
    optimizers: Sequence[torch.optim.Optimizer],
    config: TrainedConfig,
    on_epoch: OnEpoch | None,
) -> None:
    """Minimize the mean loss of every mini-batch, for the given number of epochs."""
    for epoch in range(config.epochs):
        columns = draw(epoch)
        total = 0.0
        for first, second, third in zip(*(torch.split(c, config.batch_size) for c in columns), strict=True):
            value = loss(first, second, third)
            for optimizer in optimizers:
                optimizer.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
            total += float(value.detach()) * len(first)
        if on_epoch:
            on_epoch(Epoch(epoch + 1, config.epochs, total / len(columns[0])))


def refresh(
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    draw: Callable[[int], Columns],
    of_users: Sequence[Tensor],
    config: TrainedConfig,
    epochs: int,
) -> None:
    """Train users' parameters on, for so many epochs, with negatives that training has not drawn."""
    optimizer = torch.optim.Adam(of_users, config.learning_rate, fused=True)
    more = config.model_copy(update={"epochs": epochs})
    train(loss, lambda epoch: draw(config.epochs + epoch), [optimizer], more, None)


def normal(seed: int, name: str, *shape: int) -> Tensor:
    """A parameter initialized from N(0, 0.1²)."""
    draw = generator(seed, Purpose.INIT, *name.encode())
    return torch.from_numpy(0.1 * draw.standard_normal(shape, dtype=np.float32)).requires_grad_()


def uniform(seed: int, name: str, *shape: int, bound: float) -> Tensor:
    """A parameter initialized uniformly within ±bound."""
    values = generator(seed, Purpose.INIT, *name.encode()).uniform(-bound, bound, shape)
    return torch.from_numpy(values.astype(np.float32)).requires_grad_()
