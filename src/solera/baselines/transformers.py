"""Transformers on everybody's histories: SASRec, eSASRec and HSTU, with blocks of `math.transformer`.

Every epoch takes one window of at most max_length + 1 items from every user's training items: of a longer
history the latest window in one half of the epochs, and one from anywhere in the other. The state after t
items predicts item t + 1. A step is a batch of users, whose histories run through the network in groups of
like lengths, and whose states have one loss together. The learning rate rises for `warmup` steps and falls
as a cosine to a twentieth.

Every second epoch the validation items of a fixed sample of users are ranked. The parameters of the epoch
with the best NDCG@10 are kept, and training ends after `patience` epochs without a better one. Validation
items have no other use.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor
from torch.nn.functional import embedding

from solera.baselines.training import Baseline, Epoch, OnEpoch, TrainedConfig
from solera.core.errors import DataError
from solera.core.leaf import Params
from solera.core.randomness import Purpose, generator
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged
from solera.math.losses import gbce_loss, sampled_softmax_loss, softmax_loss
from solera.math.transformer import BlockName, Dropout, Transformer, divides_width, states


class Clock:
    """When the items of a history were met and the next one is asked for, for networks with intervals.

    A state is asked for at the time of the last item it has seen. With `request_time`, it is asked for at the
    time of the request instead: in training that of the item to predict, in evaluation that of the held-out
    one.
    """

    def __init__(self, split: Split, *, request_time: bool) -> None:
        data = split.data
        if data.times is None or not data.one_clock:
            raise DataError(
                f"{data.name!r} has no times, only the order of each user's rows",
                "use -o time=none, or a data set with times",
            )
        keys = data.users.astype(np.int64) * data.n_items + data.items
        order = np.argsort(keys, kind="stable")  # the first of a repeated pair comes first
        self.request_time = request_time
        self._split, self._keys, self._times = split, keys[order], data.times[order]

    def times(self, users: Ints, histories: Ragged) -> Tensor:
        """The time of every item, where row r of the histories belongs to users[r]; and one time more."""
        found = self._at(np.repeat(users, histories.lengths), histories.values)
        return torch.from_numpy(np.append(found, 0))

    def requests(self, users: Ints, histories: Ragged) -> Tensor:
        """The time of the held-out item that follows each history; 0 if there is none.

        After a history that lacks the validation item, it is the time of that item.
        """
        train, validation, test = (
            part.take(users) for part in (self._split.train, self._split.validation, self._split.test)
        )
        follows = np.where(histories.lengths > train.lengths, validation.lengths, 0)
        held = validation.concat(test)
        found = np.zeros(len(users), dtype=np.int64)
        some = follows < held.lengths
        found[some] = self._at(users[some], held.values[(held.offsets[:-1] + follows)[some]])
        return torch.from_numpy(found)

    def in_training(self, times: Tensor) -> dict[str, Tensor]:
        """Arguments of `states` for windows, all of whose items but the last are read."""
        places = torch.cat([times[:, :1], times[:, :-1]], 1)
        return {"times": places, "asked": times if self.request_time else places}

    def in_service(self, times: Tensor, lengths: Tensor, requests: Tensor) -> dict[str, Tensor]:
        """Arguments of `states` for histories, all of whose items are read, padded to the longest."""
        asked = torch.cat([times, requests[:, None]], 1).scatter(1, lengths[:, None], requests[:, None])
        begin = torch.where(lengths > 0, asked[:, 0], requests)
        places = torch.cat([begin[:, None], times], 1)
        return {"times": places, "asked": asked if self.request_time else places}

    def _at(self, users: Ints, items: Ints) -> Ints:
        keys = users.astype(np.int64) * self._split.data.n_items + items
        found: Ints = self._times[np.searchsorted(self._keys, keys)]
        return found


GROUP = 64  # histories that run through the network together
VALIDATED = 3000  # users at most whose validation items choose the epoch
EVERY = 2  # epochs between two validations
LOWEST_RATE = 0.05  # of the learning rate, at the end
LONGEST_STEP = 1.0  # norm of a gradient


class SequenceConfig(TrainedConfig):
    """Settings of every transformer."""

    embedding_size: int = Field(
        default=64, ge=1, description="d: length of item vectors, and width of the network"
    )
    learning_rate: float = Field(default=0.002, gt=0, description="step size of Adam after the warm-up")
    reg: float = Field(default=0.0, ge=0, description="weight decay, as AdamW has it")
    epochs: int = Field(
        default=60,
        ge=1,
        description="passes over everybody's histories, at most; the learning rate falls until then",
    )
    patience: int = Field(
        default=10, ge=1, description="epochs without a better validation after which training ends"
    )
    warmup: int = Field(default=200, ge=0, description="steps in which the learning rate rises")
    batch_size: int = Field(default=128, ge=1, description="histories per step")
    loss: Literal["softmax", "sampled", "gbce"] = Field(
        default="softmax",
        description="softmax over all items, or over sampled ones, or generalized binary cross-entropy",
    )
    negatives: int = Field(
        default=1000, ge=1, description="items drawn in every step for the losses `sampled` and `gbce`"
    )
    calibration: float = Field(default=0.75, ge=0, le=1, description="t of the loss `gbce`")
    layers: int = Field(default=2, ge=1, description="blocks of the network")
    heads: int = Field(default=2, ge=1, description="attentions side by side; divides embedding_size")
    max_length: int = Field(default=50, ge=2, description="items of a history that are read, the latest")
    dropout: float = Field(
        default=0.3, ge=0, lt=1, description="share of the numbers that are set to zero in training"
    )

    _heads = field_validator("heads")(divides_width)

    block: ClassVar[BlockName] = "sasrec"

    def clock(self, split: Split) -> Clock | None:
        """The times of a split's interactions, if they are used."""
        return None

    def network(self, *, intervals: bool) -> Transformer:
        """A network of the block, with the sizes of the settings."""
        sizes = self.embedding_size, self.layers, self.heads, self.max_length
        return Transformer(self.block, *sizes, getattr(self, "perceptron", 1), intervals)


class SASRecConfig(SequenceConfig):
    """SASRec: self-attention over a history, oldest first, that predicts the next item at every position.

    Kang & McAuley, "Self-Attentive Sequential Recommendation" (ICDM 2018). The loss is not the paper's binary
    cross-entropy against one negative but, by default, the softmax over all items, which is stronger
    (Klenitskiy & Vasilev, "Turning Dross Into Gold Loss", RecSys 2023). With the loss `gbce` it is gSASRec
    (Petrov & Macdonald, RecSys 2023).
    """

    perceptron: int = Field(
        default=4, ge=1, description="width of the perceptron in a block, in multiples of embedding_size"
    )


class ESASRecConfig(SASRecConfig):
    """eSASRec: SASRec with gated residuals, gated perceptrons and a sampled softmax.

    Tikhonovich et al., "eSASRec: Enhancing Transformer-based Recommendations in a Modular Fashion" (RecSys
    2025), with LinkedIn's blocks (Borisyuk et al., "From Features to Transformers", 2025).
    """

    block: ClassVar[BlockName] = "ligr"
    loss: Literal["softmax", "sampled", "gbce"] = Field(
        default="sampled",
        description="softmax over all items, or over sampled ones, or generalized binary cross-entropy",
    )


class HSTUConfig(SequenceConfig):
    """HSTU: attention whose weights do not sum to one, gated, with biases for distances and time intervals.

    Zhai et al., "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers for Generative
    Recommendations" (ICML 2024). The public code knows the time of the request, which is that of the held-out
    item, and biases attention by the time from each item to it. Here that is `time=intervals` with
    `request_time=true`. Without the latter, an interval ends at the last item seen, which every other model
    knows as well.
    """

    block: ClassVar[BlockName] = "hstu"
    time: Literal["none", "intervals"] = Field(
        default="none", description="whether attention is biased by the time between two items"
    )
    request_time: bool = Field(
        default=False, description="whether the time of the request is known; needs `time=intervals`"
    )

    @field_validator("request_time")
    @classmethod
    def _needs_intervals(cls, request_time: bool, info: ValidationInfo) -> bool:
        if request_time and info.data.get("time") != "intervals":
            raise ValueError("needs time=intervals")
        return request_time

    def clock(self, split: Split) -> Clock | None:
        """The times of a split's interactions, if they are used."""
        return Clock(split, request_time=self.request_time) if self.time == "intervals" else None


class SequenceModel(Baseline):
    """A fitted transformer."""

    def __init__(self, network: Transformer, params: Params, clock: Clock | None = None) -> None:
        self.network = network
        self.params = params
        self.clock = clock

    @classmethod
    def fit(
        cls, split: Split, config: SequenceConfig, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> SequenceModel:
        """Train on all users' training items, until validation items are ranked no better."""
        clock = config.clock(split)
        network = config.network(intervals=clock is not None)
        training = Training(split, network, config, seed, clock)
        model = SequenceModel(network, training.params, clock)
        best, validation = BestEpoch(training.params, config.patience), Validation(split, seed)
        for epoch in range(1, config.epochs + 1):
            loss = training.epoch(epoch)
            if on_epoch:
                on_epoch(Epoch(epoch, config.epochs, loss))
            if epoch % EVERY == 0 or epoch == config.epochs:
                best.offer(epoch, validation.ndcg(model))
                if best.is_over(epoch):
                    break
        return SequenceModel(network, best.params, clock)

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """⟨h, E_i⟩ for all items, where h is the state after the last item of the history."""
        read = history.take(users)
        stream = _stream(read)
        lengths = np.minimum(read.lengths, self.network.max_length)
        clock = self.clock
        times = clock.times(users, read) if clock else stream
        requests = clock.requests(users, read) if clock else stream
        found = torch.empty(len(users), self.network.embedding_size)
        with torch.no_grad():
            for rows in map(torch.from_numpy, groups(lengths)):
                end, length = torch.from_numpy(read.offsets[1:])[rows], torch.from_numpy(lengths)[rows]
                places = (end - length)[:, None] + torch.arange(int(length.max()))
                places = places.clamp(max=len(stream) - 1)
                when = clock.in_service(times[places], length, requests[rows]) if clock else {}
                after = states(self.params, self.network, stream[places], drop=None, **when)
                found[rows] = after[torch.arange(len(rows)), length]
            return found @ self.params["items"].T


class Training:
    """One training of a network: its parameters, its optimizer and what it draws."""

    def __init__(
        self, split: Split, network: Transformer, config: SequenceConfig, seed: int, clock: Clock | None
    ) -> None:
        self.params = network.initial(split.data.n_items, seed)
        self._network, self._config, self._seed, self._clock = network, config, seed, clock
        self._random = generator(seed, Purpose.NEGATIVES)
        self._drop = Dropout(config.dropout, self._random)
        self._histories, self._users = split.train, np.flatnonzero(split.train.lengths)
        self._stream = _stream(split.train)
        self._row = torch.zeros(split.data.n_items, dtype=torch.int64)  # of an item, among those of a step
        everybody = np.arange(len(split.train))
        self._times = clock.times(everybody, split.train) if clock else self._stream
        self._optimizer = torch.optim.AdamW(
            [tensor.requires_grad_() for tensor in self.params.values()],
            config.learning_rate,
            (0.9, 0.98),
            weight_decay=config.reg,
            fused=True,
        )
        steps = config.epochs * -(-len(self._users) // config.batch_size)
        self._rate = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: rate_at(step, steps, config.warmup)
        )

    def epoch(self, number: int) -> float:
        """Take one window of every user, and return the mean loss."""
        random = generator(self._seed, Purpose.SHUFFLE, number)
        users = random.permutation(self._users)
        cut = windows(self._histories, users, self._config.max_length + 1, random)
        size = self._config.batch_size
        losses = [self._step(batch) * len(batch) for batch in np.split(cut, range(size, len(cut), size))]
        return sum(losses) / len(cut)

    def _step(self, cut: Ints) -> float:
        pieces = [torch.from_numpy(cut[rows]) for rows in groups(cut[:, 1] - cut[:, 0])]
        places = [self._places(piece) for piece in pieces]
        # The rows of the table are read at once: every reading costs a gradient as large as the table.
        used = torch.unique(torch.cat([self._stream[where].flatten() for where in places]))
        self._row[used] = torch.arange(len(used))
        read = self.params | {"items": embedding(used, self.params["items"])}
        after = [self._states(read, *both) for both in zip(pieces, places, strict=True)]
        found, targets = (torch.cat(parts) for parts in zip(*after, strict=True))
        value = _loss(self._config, found, self.params["items"], targets, self._random)
        self._optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.params.values()), LONGEST_STEP)
        self._optimizer.step()
        self._rate.step()
        return float(value.detach())

    def _places(self, cut: Tensor) -> Tensor:
        """The places of some windows in the stream, padded with the last one of each."""
        first, end, _ = cut.unbind(1)
        return torch.minimum(first[:, None] + torch.arange(int((end - first).max())), end[:, None] - 1)

    def _states(self, params: Params, cut: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """The states of some windows that predict an item, and these items."""
        first, end, begins = cut.unbind(1)
        predicts = torch.arange(places.shape[1]) < (end - first)[:, None]
        predicts[:, 0] &= begins.bool()  # the state before all items belongs to the begin of a history
        window = self._stream[places]
        when = self._clock.in_training(self._times[places]) if self._clock else {}
        after = states(params, self._network, self._row[window[:, :-1]], drop=self._drop, **when)
        return after[predicts], window[predicts]


class BestEpoch:
    """The parameters of the epoch with the best validation, and when to give up."""

    def __init__(self, params: Params, patience: int) -> None:
        self._trained = params
        self._patience = patience
        self.params = params
        self.epoch = 0
        self.value = -math.inf

    def offer(self, epoch: int, value: float) -> None:
        """Keep a copy of the parameters as they are, if they are the best so far."""
        if value > self.value:
            self.epoch, self.value = epoch, value
            self.params = {name: tensor.detach().clone() for name, tensor in self._trained.items()}

    def is_over(self, epoch: int) -> bool:
        """Whether no epoch was better for too long."""
        return epoch - self.epoch >= self._patience


class Validation:
    """NDCG@10 on the validation items of a fixed sample of users. Training items are no candidates."""

    def __init__(self, split: Split, seed: int) -> None:
        users = np.flatnonzero(split.validation.lengths)
        some = generator(seed, Purpose.EVALUATION).permutation(users)[:VALIDATED]
        self._split, self._users = split, np.sort(some)

    def ndcg(self, model: SequenceModel) -> float:
        """The mean over all validation items of these users."""
        gains = []
        for users in np.split(self._users, range(256, len(self._users), 256)):
            known, held = self._split.train.take(users), self._split.validation.take(users)
            scores = model.scores(users, self._split.train)
            own = scores[held.rows, held.values]
            scores[known.rows, known.values] = -math.inf
            better = (scores[held.rows] > own[:, None]).sum(1)
            gains.append(torch.where(better < 10, 1 / torch.log2(better + 2.0), 0.0))
        return float(torch.cat(gains).mean())


def windows(histories: Ragged, users: Ints, longest: int, random: np.random.Generator) -> Ints:
    """One window per user [n, 3]: its start and end in `histories.values`, and 1 if it begins the history."""
    begin, lengths = histories.offsets[:-1][users], histories.lengths[users]
    spare = np.maximum(lengths - longest, 0)
    anywhere = random.integers(spare + 1)
    first = begin + np.where(random.random(len(users)) < 0.5, spare, anywhere)
    return np.stack([first, first + np.minimum(lengths, longest), first == begin], axis=1)


def groups(lengths: Ints) -> list[Ints]:
    """Histories together whose lengths lie between two powers of two, at most `GROUP` of them."""
    order = np.argsort(lengths, kind="stable")
    size = np.ceil(np.log2(np.maximum(lengths[order], 1)))
    alike = np.split(order, np.flatnonzero(np.diff(size)) + 1)
    return [rows[i : i + GROUP] for rows in alike for i in range(0, len(rows), GROUP)]


def rate_at(step: int, steps: int, warmup: int) -> float:
    """The share of the learning rate at a step: a line up, then a cosine down."""
    fall = 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
    return min(1.0, (step + 1) / max(1, warmup)) * (LOWEST_RATE + (1 - LOWEST_RATE) * fall)


def _loss(
    config: SequenceConfig, found: Tensor, items: Tensor, targets: Tensor, random: np.random.Generator
) -> Tensor:
    n_items = len(items)
    if config.loss == "softmax" or (config.loss == "sampled" and config.negatives >= n_items):
        return softmax_loss(found, items, targets)
    drawn = random.choice(n_items, min(config.negatives, n_items), replace=False, shuffle=False)
    negatives = torch.from_numpy(drawn)
    if config.loss == "sampled":
        return sampled_softmax_loss(found, items, targets, negatives)
    return gbce_loss(found, items, targets, negatives, config.calibration)


def _stream(histories: Ragged) -> Tensor:
    """All items one after the other, and one more, so that no stream is empty."""
    return torch.from_numpy(np.append(histories.values, 0).astype(np.int64))
