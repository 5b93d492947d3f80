"""SASRec: self-attention over a history, oldest first, that predicts the next item at every position.

Kang & McAuley, "Self-Attentive Sequential Recommendation" (ICDM 2018). With item vectors E, position vectors
P and a history s_1 … s_n of which the last max_length items are read, s_0 being a start token,

    x_t  = √d · E[s_t] + P[t]                                                                          (Eq. 1)
    x   ← x + attention(norm(x)),   x ← x + W_2 max(W_1 norm(x) + b_1, 0) + b_2     `layers` times  (Eq. 2–5)
    h    = norm(x),   score(i | s_0 … s_t) = ⟨h_t, E_i⟩                                                (Eq. 6)

where attention is causal, and dropout is applied to x and to what is added to it. The loss is not the
paper's binary cross-entropy against one negative but the softmax over all items,

    loss = −log softmax(score(· | s_0 … s_t))[s_{t+1}],      mean over the places of a batch,

which is stronger and needs fewer epochs (Klenitskiy & Vasilev, "Turning Dross Into Gold Loss", RecSys 2023).
If there are more than `negatives` items, that many are sampled in every step to estimate the softmax.

A long history is cut into windows that overlap by half: every training item is predicted once, after at least
max_length / 2 earlier ones if there are as many. The model after the last epoch is used, as in the other
baselines; `epochs` is the setting to tune.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn
from torch.nn.functional import embedding, scaled_dot_product_attention

from solera.baselines.training import Columns, OnEpoch, TrainedConfig, train
from solera.core.arrays import Ints
from solera.core.randomness import Purpose, generator
from solera.data.ragged import Ragged
from solera.data.split import Split

CHUNK = 250_000  # logits held in memory at once: few enough for the cache of a core


class SASRecConfig(TrainedConfig):
    """Settings of SASRec."""

    embedding_size: int = Field(default=64, ge=1)
    """d: length of item vectors, and width of the network."""
    learning_rate: float = Field(default=0.003, gt=0)
    """Step size of Adam."""
    reg: float = Field(default=0.0, ge=0)
    """Weight decay, as AdamW has it."""
    epochs: int = Field(default=8, ge=1)
    """Passes over everybody's training items."""
    batch_size: int = Field(default=32, ge=1)
    """Windows of histories per step."""
    negatives: int = Field(default=10_000, ge=1)
    """Items that stand for the catalogue in the softmax of a step; a catalogue no larger is taken whole."""
    layers: int = Field(default=2, ge=1)
    """Blocks of attention and perceptron."""
    heads: int = Field(default=2, ge=1)
    """Attentions side by side; divides embedding_size."""
    max_length: int = Field(default=50, ge=2)
    """Items of a history that are read, the latest."""
    dropout: float = Field(default=0.4, ge=0, lt=1)
    """Share of the numbers that are set to zero in training."""

    @field_validator("heads")
    @classmethod
    def _divides(cls, heads: int, info: ValidationInfo) -> int:
        size = info.data.get("embedding_size", heads)
        if size % heads:
            raise ValueError(f"{heads} does not divide embedding_size={size}")
        return heads


class SASRec:
    """A fitted SASRec."""

    def __init__(self, network: Network, max_length: int) -> None:
        self.network = network.eval().requires_grad_(False)
        self.max_length = max_length

    @classmethod
    def fit(
        cls, split: Split, config: SASRecConfig | None = None, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> SASRec:
        """Train on all windows of all users' training items."""
        config = config or SASRecConfig()
        n_items = split.data.n_items
        histories = _begun(split.train, n_items)
        stream = torch.from_numpy(histories.values)
        cut = windows(histories, config.max_length)
        random = generator(seed, Purpose.NEGATIVES)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator(seed, Purpose.INIT).integers(2**63)))
            network = Network(n_items, config, random)

        def draw(epoch: int) -> Columns:
            order = generator(seed, Purpose.SHUFFLE, epoch).permutation(len(cut))
            first, asked, end = torch.from_numpy(cut[order]).unbind(1)
            return first, asked, end

        def loss(first: Tensor, asked: Tensor, end: Tensor) -> Tensor:
            places = first[:, None] + torch.arange(int((end - first).max()))
            padding = places >= end[:, None]
            chosen = ~padding & (places >= asked[:, None])
            states = network(stream[places.masked_fill(padding, 0)])[chosen]
            targets = stream[places[chosen] + 1]
            if n_items > config.negatives:
                negatives = torch.from_numpy(random.integers(n_items, size=config.negatives))
                return sampled_cross_entropy(states, network.items, targets, negatives, n_items)
            value: Tensor = CrossEntropy.apply(states, network.items[:n_items], targets)  # type: ignore[no-untyped-call]
            return value

        optimizer = torch.optim.AdamW(
            network.parameters(), config.learning_rate, (0.9, 0.98), weight_decay=config.reg, fused=True
        )
        train(loss, draw, [optimizer], config, on_epoch)
        return cls(network, config.max_length)

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """⟨h, E_i⟩ for all items, where h is the state after the last item of the history."""
        n_items = len(self.network.items) - 1
        read = _begun(history.take(users), n_items)
        lengths, ends = np.minimum(read.lengths, self.max_length), read.offsets[1:]
        places = (ends - lengths)[:, None] + np.arange(lengths.max(initial=1))
        items = read.values[np.minimum(places, ends[:, None] - 1)]
        states = self.network(torch.from_numpy(items))
        last: Tensor = states[torch.arange(len(users)), torch.from_numpy(lengths - 1)]
        return last @ self.network.items[:n_items].T


def _begun(histories: Ragged, sign: int) -> Ragged:
    """Put the start token before every history."""
    signs = np.full(len(histories), sign, dtype=np.int64)
    return Ragged.of_lengths(np.ones_like(signs), signs).concat(histories)


def windows(histories: Ragged, max_length: int) -> Ints:
    """Windows [n, 3]: start in `histories.values`, first position whose next item is predicted, and end.

    They are cut backwards from the end of a history. Its last position has no next item to predict.
    """
    step = max(1, max_length // 2)
    asked = histories.lengths - 1
    cut = Ragged.of_lengths(-(-asked // step), asked)
    rows = cut.rows
    begin = histories.offsets[rows]
    end = begin + asked[rows] - step * (np.arange(len(rows)) - cut.offsets[rows])
    return np.stack([np.maximum(begin, end - max_length), np.maximum(begin, end - step), end], axis=1)


class Network(nn.Module):
    """Maps items [n, length] to states [n, length, d]. `n_items` is the start token.

    Padding comes after a history, where no earlier position can see it.
    """

    def __init__(self, n_items: int, config: SASRecConfig, random: np.random.Generator) -> None:
        super().__init__()
        d = config.embedding_size
        self.items = nn.Parameter(0.02 * torch.randn(n_items + 1, d))
        self.places = nn.Parameter(0.02 * torch.randn(config.max_length, d))
        self.drop = Dropout(config.dropout, random)
        self.blocks = nn.Sequential(*(Block(d, config.heads, self.drop) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(d)

    def forward(self, items: Tensor) -> Tensor:
        """The states. The state at a position depends only on the items up to it."""
        x = math.sqrt(self.items.shape[1]) * embedding(items, self.items) + self.places[: items.shape[1]]
        states: Tensor = self.norm(self.blocks(self.drop(x)))
        return states


class Block(nn.Module):
    """A transformer block: causal attention and a position-wise perceptron, with residual connections."""

    def __init__(self, d: int, heads: int, drop: Dropout) -> None:
        super().__init__()
        self.heads = heads
        self.drop = drop
        self.queries_keys_values = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 3 * d))
        self.mix = nn.Linear(d, d)
        self.perceptron = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, x: Tensor) -> Tensor:
        """Map [n, length, d] to the same shape."""
        q, k, v = self.queries_keys_values(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.mix(attended.transpose(1, 2).flatten(2)))
        out: Tensor = x + self.drop(self.perceptron(x))
        return out


class Dropout(nn.Module):
    """Dropout with its own generator, to 1/65536. torch's takes nearly four times as long on a CPU."""

    def __init__(self, rate: float, random: np.random.Generator) -> None:
        super().__init__()
        self.rate = rate
        self.random = random

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout, or return x unchanged outside training."""
        if not (self.training and self.rate):
            return x
        kept = self.random.integers(65536, size=x.shape, dtype=np.uint16) >= 65536 * self.rate
        return x * torch.from_numpy(kept) / (1 - self.rate)


def sampled_cross_entropy(
    states: Tensor, items: Tensor, targets: Tensor, negatives: Tensor, n_items: int
) -> Tensor:
    """−log softmax, with the sum over all other items estimated from uniform `negatives`."""
    own = (states * embedding(targets, items)).sum(1)
    others = states @ embedding(negatives, items).T + math.log((n_items - 1) / len(negatives))
    others = others.masked_fill(negatives == targets[:, None], -math.inf)
    return (torch.logaddexp(own, others.logsumexp(1)) - own).mean()


class CrossEntropy(torch.autograd.Function):
    """Mean of −log softmax(⟨state, E_i⟩)[target]. Logits are used for the gradient and not kept."""

    @staticmethod
    def forward(context: Any, states: Tensor, items: Tensor, targets: Tensor) -> Tensor:
        """The loss. Its gradients are computed at the same time."""
        by_states, by_items = torch.empty_like(states), torch.zeros_like(items)
        total = states.new_zeros(())
        size = max(1, CHUNK // len(items))
        for state, target, by_state in zip(
            *(torch.split(tensor, size) for tensor in (states, targets[:, None], by_states)), strict=True
        ):
            surplus = torch.log_softmax(state @ items.T, 1)
            total -= surplus.gather(1, target).sum()
            surplus.exp_().scatter_add_(1, target, -torch.ones_like(state[:, :1]))
            torch.mm(surplus, items, out=by_state)
            by_items.addmm_(surplus.T, state)
        context.save_for_backward(by_states.div_(len(states)), by_items.div_(len(states)))
        return total / len(states)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        """The gradients computed in `forward`."""
        by_states, by_items = context.saved_tensors
        return gradients[0] * by_states, gradients[0] * by_items, None
