"""Protection of uploads: a chain of steps between a client's training and the server's aggregate.

Every step has a client half, which changes an upload before it is sent, and a server half, which changes the
sums before anything is made of them. Client halves run in the order of the chain, server halves in reverse.
A chain belongs to a run, not to a method. Steps are implemented elsewhere: `dp` has clipping with noise.

Masks come last: under them, uploads are added up as whole numbers (`core.fixed_point`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from solera.core.closed_form import Channels, Contribution, Ints
from solera.core.spec import Leaf, Params
from solera.core.upload import Sums, Totals, Upload


class RoundStep:
    """A step in one round. As it stands it changes nothing; steps override what they do."""

    def send(self, clients: Ints, upload: Upload) -> Upload:
        """Client half: what some clients send in the place of their uploads."""
        return upload

    def take_sums(self, sums: Sums) -> Sums:
        """Check a sum over several clients, whose client halves ran elsewhere."""
        return sums

    @property
    def counts_alike(self) -> bool:
        """Whether every client counts alike, whatever weights the method gives them."""
        return False

    @property
    def given_up(self) -> bool:
        """Whether the sums of this round must not be used."""
        return False

    def release(self, totals: Totals) -> Totals:
        """Server half: all that the aggregate may see."""
        return totals

    def memory(self) -> Params:
        """What the server remembers for the next round."""
        return {}


class Step(Protocol):
    """One protection of a run with many rounds."""

    @property
    def dense(self) -> bool:
        """Whether clients send whole tables, so that nobody sees which rows they touched."""
        ...

    def choose(self, able: Ints, round_: int) -> Ints | None:
        """The clients of a round, where the protection depends on how they are drawn."""
        ...

    def memory(self) -> Params:
        """What the server has to remember from the start."""
        ...

    def begin(self, round_: int, leaves: tuple[Leaf, ...], memory: Params) -> RoundStep:
        """The step in one round."""
        ...


class SumStep(Protocol):
    """One protection of a method of one round, whose clients send sums over their histories."""

    @property
    def dense(self) -> bool:
        """Whether clients send whole matrices."""
        ...

    def take(self, part: Contribution) -> Contribution:
        """Client half."""
        ...

    def release(self, totals: Mapping[str, Tensor], channels: Mapping[str, Channels], clients: int) -> None:
        """Server half, in place."""
        ...


@dataclass(frozen=True)
class RoundChain:
    """The steps of one round, as one."""

    steps: tuple[RoundStep, ...] = ()

    def send(self, clients: Ints, upload: Upload) -> Upload:
        """All client halves, in order."""
        for step in self.steps:
            upload = step.send(clients, upload)
        return upload

    def take_sums(self, sums: Sums) -> Sums:
        """Check a sum over several clients."""
        for step in self.steps:
            sums = step.take_sums(sums)
        return sums

    @property
    def counts_alike(self) -> bool:
        """Whether a step makes every client count alike."""
        return any(step.counts_alike for step in self.steps)

    @property
    def given_up(self) -> bool:
        """Whether a step has given the round up."""
        return any(step.given_up for step in self.steps)

    def release(self, totals: Totals) -> Totals:
        """All server halves, the last step's first."""
        for step in reversed(self.steps):
            totals = step.release(totals)
        return totals

    def memory(self) -> Params:
        """What all steps remember."""
        return {name: value for step in self.steps for name, value in step.memory().items()}


@dataclass(frozen=True)
class Chain:
    """The protections of a run, in the order in which clients apply them; masks come last."""

    steps: tuple[Step, ...] = ()
    masked: bool = False

    @property
    def dense(self) -> bool:
        """Whether clients send whole tables."""
        return any(step.dense for step in self.steps)

    def choose(self, able: Ints, round_: int) -> Ints | None:
        """The clients of a round by the first step that draws them; None if none does."""
        drawn = (step.choose(able, round_) for step in self.steps)
        return next((clients for clients in drawn if clients is not None), None)

    def memory(self) -> Params:
        """What the server has to remember from the start."""
        return {name: value for step in self.steps for name, value in step.memory().items()}

    def begin(self, round_: int, leaves: tuple[Leaf, ...], memory: Params) -> RoundChain:
        """All steps in one round."""
        return RoundChain(tuple(step.begin(round_, leaves, memory) for step in self.steps))
