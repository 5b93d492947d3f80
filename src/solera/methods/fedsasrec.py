"""FedSASRec: a transformer over the own history, trained as in a data centre, but on devices.

After Kang & McAuley, "Self-Attentive Sequential Recommendation" (ICDM 2018). A user is one sequence, so the
gradients of a round's users add up to the gradient of one mini-batch of centralized training:

    scores:  s_t(i) = ⟨h_t, E_i⟩,   h = transformer(E[i_1] … E[i_t])                      `math.transformer`
    client:  g_u = gradient of the mean over t of −log softmax(s_t)[i_{t+1}]              `engine.windows`
    server:  g = Σ_u n_u g_u / Σ_u n_u,   n_u the number of items in the window,   ‖g‖ limited to 1
             m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²
             x ← x − η (m / (1 − β₁^r) / (√(v / (1 − β₂^r)) + 10⁻⁸) + λ x)       AdamW in round r = 1, 2, …
    device:  scores with h after the whole history

A device keeps only its history. Without dropout, rounds are the same steps that AdamW takes in one place, on
mini-batches of one window per user.

If there are more than `negatives` items, that many are drawn for a round, the same for all its clients. They
estimate the sum over all other items, and a client sends only their rows and those of its own items.

Symbols: η is `learning_rate`, times r / `warmup` in the first rounds; λ is `reg`; β₁ = 0.9, β₂ = 0.98.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from solera.core.context import MethodConfig, RoundContext, Schedule, Scheduled
from solera.core.leaf import ITEMS, MEMORY, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Aggregate, Drop, Loss, Move, Scorer, Sgd, Stage, Update, View
from solera.core.randomness import Purpose
from solera.core.upload import Totals
from solera.math.losses import cross_entropy
from solera.math.transformer import BlockName, Transformer, divides_width, states
from solera.methods.parts import inner

_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.98, 1e-8  # β₁, β₂
_LONGEST = 1.0  # ‖g‖
_READ_AT_ONCE = 8192  # places of histories that are read to score items


class FedSASRecConfig(MethodConfig):
    """Defaults: good on MovieLens-1M."""

    embedding_size: int = Field(
        default=64, ge=1, description="length of an item vector, width of the network"
    )
    learning_rate: Scheduled = Field(
        default=Schedule(start=0.002), description="η: the server's step size; may be e.g. 0.002*cosine(3000)"
    )
    warmup: int = Field(
        default=200, ge=1, description="rounds in which the step size grows to its full value"
    )
    reg: float = Field(default=0.0, ge=0, description="λ: weight decay, as AdamW has it")
    local_epochs: int = Field(default=1, ge=1, le=1, description="a client sends one gradient a round")
    batch_size: int = Field(default=256, ge=1, description="not used: a client's window is one batch")
    negatives: int = Field(
        default=10_000,
        ge=1,
        description="items that stand for the catalogue in a round; a catalogue no larger is taken whole",
    )
    clients_per_round: float = Field(
        default=128, gt=0, description="share of the clients per round (up to 1), or their number (above 1)"
    )
    block: BlockName = Field(default="sasrec", description="kind of transformer block: sasrec, ligr or hstu")
    layers: int = Field(default=2, ge=1, description="blocks of the network")
    heads: int = Field(
        default=2, ge=1, validate_default=True, description="attentions side by side; divides embedding_size"
    )
    max_length: int = Field(default=200, ge=1, description="items of a history that are read, the latest")
    dropout: float = Field(default=0.2, ge=0, lt=1, description="share of numbers set to zero in training")

    _heads = field_validator("heads")(divides_width)


@dataclass(frozen=True)
class TransformerHistory(Scorer):
    """⟨state of a transformer after the own history, item⟩. No user vector is stored."""

    network: Transformer
    label: str = "own history, transformer"
    learns_from = "windows"

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The network without the item vectors, which belong to the view."""
        return tuple(leaf for leaf in self.network.leaves() if leaf.name != ITEMS)

    @property
    def max_length(self) -> int:
        return self.network.max_length

    def score(self, params: Params, items: Tensor) -> Tensor:
        """Scores from the state that the engine computed from the client's history."""
        return inner(params[MEMORY], items)

    def states(self, params: Params, items: Tensor, drop: Drop | None = None) -> Tensor:
        """States [clients, length + 1, d] before the first of the items [clients, length] and after each."""
        return states(params, self.network, items, drop=drop)

    def remember(self, shared: Params, items: Tensor, lengths: Tensor) -> Tensor:
        """States [clients, d] after whole histories, of which the latest items are read."""
        read = lengths.clamp(max=self.max_length)
        first = lengths.cumsum(0) - read
        order = torch.argsort(read, descending=True, stable=True)
        found = shared[ITEMS].new_empty(len(lengths), self.network.embedding_size)
        while len(order):
            longest = int(read[order[0]])
            count = min(len(order), 1 + _READ_AT_ONCE // (longest + 1))
            now, order = order[:count], order[count:]
            place = first[now, None] + torch.arange(longest)
            seen = items[place.clamp(max=max(0, len(items) - 1)).to(items.device)]
            found[now] = self.states(shared, seen.long())[torch.arange(count), read[now]]
        return found


@dataclass(frozen=True)
class ItemVectors(View):
    """One shared item table, used directly."""

    table: Leaf
    label: str = "shared as it is"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self.table,)

    def see(self, params: Params) -> Tensor:
        return params[ITEMS]


@dataclass(frozen=True)
class OneGradient(Update):
    """One gradient of everything: a step of size 1 over the own window."""

    leaves: tuple[str, ...]
    label: str = "one gradient"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        return (Stage(1, (Move(self.leaves, Sgd(1.0)),)),)


@dataclass(frozen=True)
class CatalogueSoftmax(Loss):
    """Cross-entropy of the next item against the catalogue.

    Of more than `negatives` items, so many are drawn for a round, the same for all clients. They estimate the
    sum over all other items.
    """

    negatives: int
    label: str = "softmax over the catalogue, next item"
    learns_from = "windows"

    def drawn(self, context: RoundContext) -> Tensor | None:
        """The negatives of a round, ascending; None stands for all items."""
        if context.n_items <= self.negatives:
            return None
        draw = context.generator(Purpose.NEGATIVES)
        return torch.from_numpy(np.sort(draw.choice(context.n_items, self.negatives, replace=False)))

    def losses(
        self, states: Tensor, items: Tensor, targets: Tensor, weights: Tensor, negatives: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The weighted sum of the losses of states [n, d], and the single losses [n] without gradients."""
        return cross_entropy(states, items, targets, weights, negatives)


@dataclass(frozen=True)
class AdamOfMean(Aggregate):
    """AdamW on the server, with the weighted mean of the clients' gradients."""

    label: str = "weighted mean, by AdamW on the server"
    weighted: bool = True
    from_sums: bool = True

    def memory(self, sent: Params) -> Params:
        return {f"server.{kind}.{name}": torch.zeros_like(v) for kind in "mv" for name, v in sent.items()}

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """One step. Clients send what a step of size 1 changes, the negative gradient."""
        if not totals.weight:
            return shared
        means = {name: totals.leaf(name).change / -totals.weight for name in totals.names}
        length = math.sqrt(sum(float(each.flatten() @ each.flatten()) for each in means.values()))
        hyper, number = context.hyper, context.round + 1
        rate = hyper["learning_rate"] * min(1.0, number / hyper["warmup"])
        after = dict(shared)
        for name, mean in means.items():
            keys = name, f"server.m.{name}", f"server.v.{name}"
            gradient = mean.mul_(min(1.0, _LONGEST / (length + 1e-6)))
            x, m, v = (shared[key].to(mean, copy=True) for key in keys)
            m.lerp_(gradient, 1 - _DECAY)
            v.mul_(_SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - _SQUARE_DECAY)
            root = v.div(1 - _SQUARE_DECAY**number).sqrt_().add_(_EPSILON)
            x.mul_(1 - rate * hyper["reg"]).addcdiv_(m, root, value=-rate / (1 - _DECAY**number))
            after |= {key: value.to(shared[key].dtype) for key, value in zip(keys, (x, m, v), strict=True)}
        return after


def fedsasrec(config: FedSASRecConfig) -> Method:
    """Build FedSASRec: transformer of the own history × shared × one gradient × AdamW on the server."""
    network = Transformer(config.block, config.embedding_size, config.layers, config.heads, config.max_length)
    leaves = network.leaves()
    return Method(
        name="fedsasrec",
        paper="after Kang & McAuley 2018",
        config=config,
        scorer=TransformerHistory(network),
        view=ItemVectors(next(leaf for leaf in leaves if leaf.name == ITEMS)),
        loss=CatalogueSoftmax(config.negatives),
        update=OneGradient(tuple(leaf.name for leaf in leaves)),
        aggregate=AdamOfMean(),
    )
