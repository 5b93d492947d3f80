"""Simulation of a one-round method: sum over clients' histories, then solve."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Floats, Ints
from solera.core.closed_form import NEIGHBOURS, WEIGHTS, Channels, ClosedForm, Contribution
from solera.core.fixed_point import FixedPoint, lengths
from solera.core.protection import SumStep
from solera.core.spec import Params
from solera.core.tensor_files import Writable
from solera.data.ragged import Ragged, ages, days_of_all, gaps
from solera.data.sampling import ClientData
from solera.engine.ranks import Ranks
from solera.engine.shares import share_of
from solera.engine.simulation import RoundResult
from solera.engine.sums import Cover, Sum, rounded, sum_for
from solera.math.linear import memory_scores
from solera.math.neighbours import Neighbours

Change = Callable[[Contribution], Contribution]
_LOG = logging.getLogger(__name__)
_TOLD_EVERY = 1000  # clients between two calls of `on_clients`


@dataclass(frozen=True)
class Solution:
    """The state of a one-round method: the solved matrix. Clients keep only their history."""

    shared: Params = field(default_factory=dict)

    def copy(self) -> Solution:
        """The same object, because nothing changes it."""
        return self

    def tensors(self) -> tuple[Params, Params]:
        """Tensors of the server and of the clients."""
        return self.shared, {}

    def writable(self) -> tuple[Params, Writable]:
        """The same."""
        return self.tensors()


class OneRound:
    """All clients and the server of one federation."""

    def __init__(
        self,
        method: ClosedForm,
        data: ClientData,
        *,
        device: torch.device,
        dtype: torch.dtype,
        secure_aggregation: bool = False,
        protection: SumStep | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        """With `ranks`, this process has only some of the clients; the first rank solves for all.

        Contributions and their total go through `protection`, if it is given."""
        method.check(data.n_items)
        self.method, self.data = method, data
        self.secure_aggregation = secure_aggregation
        self._device, self._dtype = device, dtype
        self.share = share_of(ranks, data.train.lengths)
        self.protection = protection
        self.state = Solution()
        self.keeps_totals = False  # after a round, so that `update` can go on from `totals`
        self.totals: Sum | None = None
        self.on_clients: Callable[[int, int], None] | None = None  # called with the clients done, and all

    def run_round(self, round_: int) -> RoundResult:
        """Add up the clients' sums and solve for the model."""
        self.method.prior.checked()
        _warn_of_memory(self.method, self.data.n_items)
        clients = np.flatnonzero(self.data.train.lengths)
        masked = (
            FixedPoint.of(self.method, self.data.n_items, places=len(clients))
            if self.secure_aggregation
            else None
        )
        own = np.intersect1d(clients, self.share.clients, assume_unique=True)
        change = partial(rounded, masked=masked) if masked else self._rounding(own, len(clients))
        totals, sent = self._collect(own, change)
        sent = self.share.counted(sent)
        if self.protection and self.protection.dense:
            sent = len(clients) * sum(map(self._whole, self.method.update.sums.values()))
        if self.keeps_totals:
            self.totals = totals.grown(self.data.n_items)
        begin = time.perf_counter()
        cover = self._cover(len(clients))
        self.state = Solution(
            self.share.solved(totals, lambda all_: all_.solve(self._device, self._dtype, cover))
        )
        seconds = time.perf_counter() - begin
        up, down = 4.0 * sent / len(clients), 4.0 * numbers(self.state.shared)
        if masked:
            up = sum(lengths(self.method, self.data.n_items).values()) * masked.bits / 8
        return RoundResult(round_, len(clients), 0.0, up, down, seconds)

    def update(self, earlier: OneRound, changed: Ints) -> None:
        """Solve from the totals of an earlier federation, whose other clients have the same histories.

        What the `changed` clients had sent is taken out of the totals and what they send now is added.
        Clients and items that are new come after the earlier ones.
        """
        assert earlier.totals is not None
        totals = earlier.totals.grown(self.data.n_items)
        for client in changed.tolist():
            if client < earlier.data.n_clients and earlier.data.train.lengths[client]:
                before = contribution_of(self.method, earlier.data.train, client)
                totals.add(Contribution(before.items, {n: -block for n, block in before.blocks.items()}))
            totals.add(contribution_of(self.method, self.data.train, client))
        self.totals = totals
        solved = totals.grown(self.data.n_items).solve(self._device, self._dtype)
        self.state = Solution(solved)

    def _collect(self, clients: Ints, change: Change | None) -> tuple[Sum, int]:
        """The total of the clients' contributions, each changed, and how many numbers they send."""
        totals, sent = sum_for(self.method, self.data.n_items), 0
        for done, client in enumerate(clients):
            if self.on_clients and done % _TOLD_EVERY == 0:
                self.on_clients(done, len(clients))
            contribution = contribution_of(self.method, self.data.train, int(client))
            if self.protection:
                contribution = self.protection.take(contribution)
            totals.add(change(contribution) if change else contribution)
            sent += contribution.numbers(self.method.update.sums)
        return totals, sent

    def _rounding(self, own: Ints, clients: int) -> Change | None:
        """What makes the total exact for any number of ranks; None if it is anyway, as of whole numbers."""
        sums = self.method.update.sums
        if all(each.whole for each in sums.values()):
            return None

        def peaks() -> dict[str, float]:
            found = dict.fromkeys(sums, 0.0)
            for client in own:
                for name, block in contribution_of(self.method, self.data.train, int(client)).blocks.items():
                    found[name] = max(found[name], float(np.abs(block).max(initial=0.0)))
            return found

        return self.share.rounding(peaks, clients)

    def _whole(self, sums: Channels) -> int:
        """How many numbers a client sends for a whole matrix."""
        numbers, rows = prod(sums.shape(self.data.n_items)), sums.rows * self.data.n_items
        return (numbers + rows) // 2 if sums.symmetric else numbers

    def _cover(self, clients: int) -> Cover | None:
        """The server half of the protection for a total over this many clients, or None."""
        if self.protection is None:
            return None
        return partial(self.protection.release, channels=self.method.update.sums, clients=clients)

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for clients with these histories, oldest first: [·, n_items]."""
        sparse = self._neighbours(self.state.shared)
        if sparse:
            return lambda clients: self._sparse_scores(sparse, known.take(clients))
        weights = self.state.shared[WEIGHTS]

        def scores(clients: Ints) -> Tensor:
            histories = known.take(clients)
            memory = memory_weights(self.method, histories)
            return memory_scores(weights, histories.offsets, histories.values, memory)

        return scores

    def _neighbours(self, shared: Params) -> Neighbours | None:
        return Neighbours.of(shared, self.method.scorer.channels, self._dtype)

    def _sparse_scores(self, weights: Neighbours, histories: Ragged) -> Tensor:
        """Scores [clients, n_items]. A repeated item is counted every time."""
        channels = self.method.scorer.channels
        sources = histories.values[:, None].astype(np.int64) * channels + np.arange(channels)
        memory = torch.from_numpy(memory_weights(self.method, histories).T.ravel())
        rows = histories.rows.repeat(channels)
        return weights.scores(rows, sources.ravel(), memory, len(histories))

    def restore(self, shared: Params, personal: Params) -> None:
        """Continue from a saved state."""
        self._neighbours(shared)  # checks them
        self.state = Solution({name: value.to(self._device) for name, value in shared.items()})


def contribution_of(method: ClosedForm, histories: Ragged, client: int) -> Contribution:
    """What a client computes from its history."""
    if not method.timed:
        return method.update.of(histories.row(client))
    days_of_all(histories)
    return method.update.of(histories.row(client), histories.days_of(client))


def memory_weights(method: ClosedForm, histories: Ragged) -> Floats:
    """Weights [channels, …] of all items of these histories in their memories."""
    return method.scorer.weights(ages(histories), gaps(histories) if method.timed else None)


def numbers(shared: Params) -> int:
    """How many numbers a device downloads: of a sparse model, the neighbours that have a weight."""
    if NEIGHBOURS in shared:
        return 2 * int(shared[WEIGHTS].count_nonzero())
    return shared[WEIGHTS].numel()


def _warn_of_memory(method: ClosedForm, n_items: int) -> None:
    """Log a warning if sums and solution take more than half of the free memory."""
    needed = method.bytes_needed(n_items)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        return
    if needed > free / 2:
        _LOG.warning(
            "%s with %s items takes about %.1f GiB of memory; %.1f GiB are free",
            method.name,
            f"{n_items:,}",
            needed / 2**30,
            free / 2**30,
        )
