"""FedHist: represents a user by a memory of their own history, trained in federated rounds.

The idea of the one-round methods, which solve for an items × items matrix, for catalogues of any size:
two vectors per item.

    memory:  m_t = [1 ; Σ_{k < t} a^(t−1−k) E[i_k] / √(Σ_{k < t} a^(t−1−k))]       E shared
    score:   s_t(i) = ⟨m_t, Q[i]⟩                                                  Q shared, first a bias
    loss:    1/√n · Σ_t −log(e^s_t(i_t) / (e^s_t(i_t) + Σ_j e^s_t(j)))             j the negatives drawn
    local:   E and Q take steps on the n ≤ `batch_size` places of the own sequence at a time, oldest first
    server:  every row ← its mean over the clients that touched it
    served:  with the memory of the whole history known

A device keeps only its history, so a user who never took part is served like any other.

Symbols: a are `decays`, each for an equal share of the dimensions.

No user vector is stored. The 1 before the decaying sum makes the first number of an item's vector its bias.
The root keeps memories of one item and of many items at a similar length. Every item of a sequence is a
prediction target, given the memory before it. The first item is predicted from its bias alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from solera.core.context import Batch, Decays, MethodConfig, RoundContext, Schedule, Scheduled
from solera.core.leaf import INPUTS, ITEMS, MEMORY, Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Loss, Scorer, View
from solera.methods.parts import Joint, Mean, inner


@dataclass(frozen=True)
class FadingHistory(Scorer):
    """⟨memory of the own history, item⟩. No user vector is stored."""

    decays: tuple[float, ...]
    leaves: tuple[Leaf, ...] = ()
    label: str = "own history, fading"
    learns_from = "sequences"

    def score(self, params: Params, items: Tensor) -> Tensor:
        """Scores from the memory that the engine computed from the client's history."""
        return inner(params[MEMORY], items)

    def fading(self, ages: Tensor, counts: Tensor) -> Tensor:
        """Memory weights of items by age and history length, per decay: [decays, ...].

        Items with an age below 0 are in the future and have weight 0.
        """
        most = int(counts.max()) if counts.numel() else 0
        powers = torch.tensor(self.decays, dtype=torch.float64).unsqueeze(-1) ** torch.arange(most + 1)
        roots = powers.cumsum(-1).sqrt_()  # of the sums over 1, 2, … items
        return powers[:, ages.clamp(min=0)].mul_(ages >= 0) / roots[:, (counts - 1).clamp(min=0)]

    def of_dimensions(self, size: int) -> Tensor:
        """The index of the decay that each memory dimension uses."""
        return torch.arange(size) * len(self.decays) // size

    def remember(self, shared: Params, items: Tensor, lengths: Tensor) -> Tensor:
        """Memories [clients, 1 + d] of whole histories, from the shared input vectors of their items."""
        return self.last(shared[INPUTS].index_select(0, items), lengths)

    def last(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Memories [clients, 1 + d] of whole histories, given their concatenated inputs [sum(lengths), d]."""
        ends = lengths.cumsum(0)
        ages = ends.repeat_interleave(lengths) - 1 - torch.arange(len(inputs))
        weights = self.fading(ages, lengths.repeat_interleave(lengths))
        faded = inputs * weights[self.of_dimensions(inputs.shape[-1])].T.to(inputs)
        owner = torch.arange(len(lengths)).repeat_interleave(lengths).to(inputs.device)
        memory = inputs.new_zeros(len(lengths), inputs.shape[-1]).index_add_(0, owner, faded)
        return _with_one(memory)

    def before(self, inputs: Tensor, places: range) -> Tensor:
        """Memories [..., places, 1 + d] before each position, from the inputs [..., L, d] of a history."""
        return _with_one(self._through(inputs, self._steps(places, inputs)))

    def input_gradient(self, slope: Tensor, places: range) -> Tensor:
        """Gradient with respect to the inputs, [..., L, d], given the gradient by the output of `before`."""
        steps = self._steps(places, slope).transpose(-1, -2)
        return self._through(slope[..., 1:], steps)

    def _steps(self, places: range, like: Tensor) -> Tensor:
        """[decays, places, L]: the weight of each item in the memory at each position."""
        counts = torch.arange(places.start, places.stop).unsqueeze(-1)
        return self.fading(counts - 1 - torch.arange(places.stop), counts).to(like)

    def _through(self, values: Tensor, steps: Tensor) -> Tensor:
        sizes = torch.bincount(self.of_dimensions(values.shape[-1]), minlength=len(self.decays)).tolist()
        parts = torch.split(values, sizes, dim=-1)
        return torch.cat([step @ part for step, part in zip(steps, parts, strict=True)], dim=-1)


def _with_one(memory: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(memory[..., :1]), memory], dim=-1)


@dataclass(frozen=True)
class InputsAndItems(View):
    """Two shared item tables: input vectors, which form a user's memory, and item vectors to score."""

    embedding_size: int
    label: str = "shared as it is"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The item vectors, which start at zero, and the input vectors."""
        d = self.embedding_size
        return (
            Leaf(ITEMS, (1 + d,), Home.SHARED, Init.ZEROS, per_item=True, upload=True, bias=True),
            Leaf(INPUTS, (d,), Home.SHARED, Init.LINEAR, per_item=True, upload=True, fan_in=d),
        )

    def see(self, params: Params) -> Tensor:
        return params[ITEMS]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        return {ITEMS: slope}


@dataclass(frozen=True)
class SampledSoftmax(Loss):
    """Cross-entropy of a sequence's next item against sampled negatives."""

    label: str = "sampled softmax, next item"
    learns_from = "sequences"

    def value_and_slope(self, scores: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and derivative at every position of a sequence; see `sampled_softmax`."""
        return sampled_softmax(scores, targets, drawn)


def sampled_softmax(scores: Tensor, targets: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """−log of the target's share of e^score among it and the negatives, and its derivative by the scores.

    `scores` [..., places, n] of all rows are overwritten.

    `targets` [..., places] are the rows of the target items, `drawn` [..., n] counts how often each row is
    a negative.
    """
    target = targets.unsqueeze(-1)
    own = scores.gather(-1, target)
    others = scores.add_(drawn.log().unsqueeze(-2))
    top = torch.maximum(own, others.amax(-1, keepdim=True))
    others.sub_(top).exp_()
    share = (own - top).exp_()
    total = others.sum(-1, keepdim=True).add_(share)
    loss = (total.log() + top - own).squeeze(-1)
    slope = others.div_(total).scatter_add_(-1, target, share.div_(total).sub_(1))
    return loss, slope


class FedHistConfig(MethodConfig):
    """Defaults: chosen on the validation items of MovieLens-100K."""

    embedding_size: int = Field(default=32, ge=1, description="length of an item's input")
    decays: Decays = Field(
        default=(0.6, 0.95),
        description="a, shared out among the dimensions, e.g. 0.6,0.95; 1 forgets nothing",
    )
    learning_rate: Scheduled = Field(default=Schedule(start=4.0), description="step size of both tables")
    batch_size: int = Field(default=256, ge=1, description="places of the own sequence per local step")
    negatives: int = Field(
        default=1, ge=1, description="negatives drawn per item of the sequence, for all its places"
    )
    clients_per_round: float = Field(
        default=0.2, gt=0, description="share of the clients per round (up to 1), or their number (above 1)"
    )


def fedhist(config: FedHistConfig) -> Method:
    """Build FedHist: own history × shared × joint × row mean."""
    return Method(
        name="fedhist",
        paper="our own",
        config=config,
        scorer=FadingHistory(config.decays),
        view=InputsAndItems(config.embedding_size),
        loss=SampledSoftmax(),
        update=Joint((ITEMS, INPUTS)),
        aggregate=Mean(by_row=True),
    )
