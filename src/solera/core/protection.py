"""Protection of uploads: a chain of steps between a client's training and the server's aggregate.

Every step has a client half, which changes an upload before it is sent, and a server half, which changes the
sums before the aggregate sees them. Client halves run in the order of the chain, server halves in reverse.
A chain belongs to a run, not to a method. Steps are implemented elsewhere: `dp` has clipping with noise,
`coding` shorter forms of an upload.

A coding comes first: clipping then scales what the server decodes, so its bound holds. Masks
come last: with them, uploads are added up as integers (`core.fixed_point`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from solera.core.closed_form import Channels, Contribution
from solera.core.leaf import Leaf, Params
from solera.core.types import Ints
from solera.core.upload import Sums, Totals, Upload, upload_bytes


class RoundStep:
    """A step in one round. The base class changes nothing; steps override what they need."""

    def send(self, clients: Ints, upload: Upload) -> Upload:
        """Client half: transform the uploads of some clients before they are sent."""
        return upload

    def send_kept(self, clients: Ints, leaf: str, tables: Tensor) -> Tensor:
        """Client half for tables [clients, items, d] that clients keep, as the server comes to know them."""
        return tables

    def take_sums(self, sums: Sums) -> Sums:
        """Check a sum over several clients whose client halves ran elsewhere."""
        return sums

    @property
    def counts_alike(self) -> bool:
        """Whether every client has the same weight, regardless of the method's weights."""
        return False

    @property
    def given_up(self) -> bool:
        """Whether the sums of this round must not be used."""
        return False

    def release(self, totals: Totals) -> Totals:
        """Server half: transform the totals before the aggregate sees them."""
        return totals

    def memory(self) -> Params:
        """State that the server keeps for the next round."""
        return {}

    def bytes_per_client(self, sent: Upload) -> Ints | None:
        """Size of each client's upload, if this step determines it."""
        return None


class Step:
    """A protection step of a run with many rounds. The base class changes nothing either."""

    @property
    def dense(self) -> bool:
        """Whether clients send whole tables, so that nobody sees which rows they touched."""
        return False

    def choose(self, able: Ints, round_: int) -> Ints | None:
        """Draw the clients of a round, if the protection depends on how they are drawn."""
        return None

    def memory(self) -> Params:
        """Initial state that the server keeps."""
        return {}

    def begin(self, round_: int, leaves: tuple[Leaf, ...], memory: Params) -> RoundStep:
        """Start the step for one round."""
        return RoundStep()


class SumStep(Protocol):
    """A protection step of a one-round method, whose clients send sums over their histories."""

    @property
    def dense(self) -> bool:
        """Whether clients send whole matrices."""
        ...

    def take(self, part: Contribution) -> Contribution:
        """Client half: transform a client's contribution."""
        ...

    def release(self, totals: Mapping[str, Tensor], channels: Mapping[str, Channels], clients: int) -> None:
        """Server half: transform the totals in place."""
        ...


class UploadCoding(Protocol):
    """A coding of clients' uploads."""

    def coded(self, upload: Upload, leaves: tuple[Leaf, ...]) -> Upload:
        """The uploads as the server decodes them. Rows may be missing; those left are in the same order."""
        ...

    def bytes_per_client(self, sent: Upload, leaves: tuple[Leaf, ...]) -> Ints:
        """Size of each client's coded upload, given the decoded one."""
        ...


class Download(Protocol):
    """A coding of the tables that clients download."""

    def received(self, shared: Params) -> Params:
        """The shared leaves as clients decode them. Derived leaves are computed from these."""
        ...

    def bytes_per_client(self, n_items: int) -> float:
        """What each client of a round downloads."""
        ...


class Residuals(Protocol):
    """What earlier codings left out, kept by each client and added to its next upload."""

    def added(self, clients: Ints, upload: Upload) -> Upload:
        """The uploads, each with what is left of the same rows."""
        ...

    def keep(self, clients: Ints, whole: Upload, sent: Upload) -> None:
        """Keep the difference between the uploads and what the server decodes."""
        ...


@dataclass(frozen=True)
class CodedRound(RoundStep):
    """Coding with error feedback in one round. It is the first step of a chain; see `Chain`."""

    coding: UploadCoding
    leaves: tuple[Leaf, ...]
    residuals: Residuals

    def send(self, clients: Ints, upload: Upload) -> Upload:
        """The uploads as the server decodes them. The rest stays on the clients."""
        whole = self.residuals.added(clients, upload)
        sent = self.coding.coded(whole, self.leaves)
        self.residuals.keep(clients, whole, sent)
        return sent

    def bytes_per_client(self, sent: Upload) -> Ints:
        """Size of each client's coded upload."""
        return self.coding.bytes_per_client(sent, self.leaves)


@dataclass(frozen=True)
class RoundChain:
    """The steps of one round, combined into one."""

    steps: tuple[RoundStep, ...] = ()

    def send(self, clients: Ints, upload: Upload) -> Upload:
        """Apply all client halves, in order."""
        for step in self.steps:
            upload = step.send(clients, upload)
        return upload

    def send_kept(self, clients: Ints, leaf: str, tables: Tensor) -> Tensor:
        """Apply all client halves to tables that clients keep."""
        for step in self.steps:
            tables = step.send_kept(clients, leaf, tables)
        return tables

    def take_sums(self, sums: Sums) -> Sums:
        """Check a sum over several clients."""
        for step in self.steps:
            sums = step.take_sums(sums)
        return sums

    @property
    def counts_alike(self) -> bool:
        """Whether any step gives every client the same weight."""
        return any(step.counts_alike for step in self.steps)

    @property
    def given_up(self) -> bool:
        """Whether any step requires discarding the round."""
        return any(step.given_up for step in self.steps)

    def release(self, totals: Totals) -> Totals:
        """Apply all server halves, last step first."""
        for step in reversed(self.steps):
            totals = step.release(totals)
        return totals

    def memory(self) -> Params:
        """The state of all steps."""
        return {name: value for step in self.steps for name, value in step.memory().items()}

    def bytes_per_client(self, sent: Upload, leaves: tuple[Leaf, ...]) -> Ints:
        """Size of each client's upload on the wire."""
        sizes = (step.bytes_per_client(sent) for step in self.steps)
        return next((size for size in sizes if size is not None), upload_bytes(sent.row_counts, leaves))


@dataclass(frozen=True)
class Chain:
    """The protections of a run, in the order in which clients apply them.

    `coding` is the first of them, and masks are the last.
    """

    steps: tuple[Step, ...] = ()
    masked: bool = False
    coding: UploadCoding | None = None

    @property
    def dense(self) -> bool:
        """Whether clients send whole tables."""
        return any(step.dense for step in self.steps)

    def choose(self, able: Ints, round_: int) -> Ints | None:
        """The clients drawn by the first step that draws any, or None."""
        drawn = (step.choose(able, round_) for step in self.steps)
        return next((clients for clients in drawn if clients is not None), None)

    def memory(self) -> Params:
        """Initial state that the server keeps."""
        return {name: value for step in self.steps for name, value in step.memory().items()}

    def begin(
        self, round_: int, leaves: tuple[Leaf, ...], memory: Params, residuals: Residuals | None = None
    ) -> RoundChain:
        """Start all steps for one round. A coding needs the residuals of the clients."""
        steps: list[RoundStep] = []
        if self.coding:
            assert residuals is not None
            steps.append(CodedRound(self.coding, leaves, residuals))
        return RoundChain((*steps, *(step.begin(round_, leaves, memory) for step in self.steps)))
