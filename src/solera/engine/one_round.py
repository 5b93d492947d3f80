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
from solera.core.closed_form import WEIGHTS, Channels, ClosedForm, Contribution
from solera.core.fixed_point import FixedPoint, lengths
from solera.core.protection import SumStep
from solera.core.spec import Params
from solera.core.tensor_files import Writable
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.simulation import RoundResult

Cover = Callable[[dict[str, Tensor]], None]
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
    ) -> None:
        """Contributions and their total go through `protection`, if it is given."""
        method.check(data.n_items)
        self.method, self.data = method, data
        self.secure_aggregation = secure_aggregation
        self._device, self._dtype = device, dtype
        self.protection = protection
        self.state = Solution()
        self.on_clients: Callable[[int, int], None] | None = None  # called with the clients done, and all

    def run_round(self, round_: int) -> RoundResult:
        """Add up the clients' sums and solve for the model."""
        _warn_of_memory(self.method, self.data.n_items)
        clients = np.flatnonzero(self.data.train.lengths)
        totals, sent = Sum(self.method, self.data.n_items), 0
        masked = (
            FixedPoint.of(self.method, self.data.n_items, places=len(clients))
            if self.secure_aggregation
            else None
        )
        for done, client in enumerate(clients):
            if self.on_clients and done % _TOLD_EVERY == 0:
                self.on_clients(done, len(clients))
            contribution = self.method.update.of(self.data.train.row(int(client)))
            if self.protection:
                contribution = self.protection.take(contribution)
            totals.add(rounded(contribution, masked) if masked else contribution)
            sent += contribution.numbers(self.method.update.sums)
        if self.protection and self.protection.dense:
            sent = len(clients) * sum(map(self._whole, self.method.update.sums.values()))
        begin = time.perf_counter()
        weights = totals.solve(self._device, self._cover(len(clients))).to(self._dtype)
        self.state = Solution({WEIGHTS: weights})
        seconds = time.perf_counter() - begin
        up, down = 4.0 * sent / len(clients), 4.0 * weights.numel()
        if masked:
            up = sum(lengths(self.method, self.data.n_items).values()) * masked.bits / 8
        return RoundResult(round_, len(clients), 0.0, up, down, seconds)

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
        weights = self.state.shared[WEIGHTS]

        def scores(clients: Ints) -> Tensor:
            return self._memory(known.take(clients)).to(weights) @ weights

        return scores

    def restore(self, shared: Params, personal: Params) -> None:
        """Continue from a saved state."""
        self.state = Solution({name: value.to(self._device) for name, value in shared.items()})

    def _memory(self, histories: Ragged) -> Tensor:
        """Memories [clients, channels · items]. A repeated item is counted every time."""
        scorer, n_items = self.method.scorer, self.data.n_items
        ages = np.repeat(histories.offsets[1:], histories.lengths) - 1 - np.arange(len(histories.values))
        memory = torch.zeros(len(histories), scorer.channels * n_items, dtype=torch.float64)
        rows = torch.from_numpy(histories.rows)
        for channel, weights in enumerate(scorer.weights(ages)):
            columns = torch.from_numpy(histories.values + channel * n_items)
            memory.index_put_((rows, columns), torch.from_numpy(weights), accumulate=True)
        return memory


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


class Sum:
    """The total of the clients' sums. A symmetric sum only fills the upper channels."""

    def __init__(self, method: ClosedForm, n_items: int) -> None:
        self._method, self._n_items = method, n_items
        self._totals = {name: np.zeros(c.shape(n_items)) for name, c in method.update.sums.items()}

    def add(self, part: Contribution) -> None:
        """Add the contribution of one client, or of several together."""
        pairs = np.ix_(part.items, part.items)
        for name, block in part.blocks.items():
            rows, columns, symmetric, width, _ = self._method.update.sums[name]
            place = part.items if width else pairs
            for row in range(rows):
                for column in range(row if symmetric else 0, columns):
                    self._totals[name][row, :, column][place] += block[row, :, column]

    def of(self, items: Ints) -> Contribution:
        """The total as a contribution. All entries outside the given items must be zero."""
        sums = self._method.update.sums
        rows = {name: total[:, items] for name, total in self._totals.items()}
        return Contribution(
            items, {name: each if sums[name].width else each[..., items] for name, each in rows.items()}
        )

    def solve(self, device: torch.device, cover: Cover | None = None) -> Tensor:
        """Solve for the model, after applying `cover` if given. The sums are used up."""
        for name, total in self._totals.items():
            _mirror(total, self._method.update.sums[name])
        matrices = {
            name: torch.from_numpy(total.reshape(total.shape[0] * self._n_items, -1)).to(device)
            for name, total in self._totals.items()
        }
        if cover:
            cover(matrices)
        return self._method.aggregate.solve(matrices)


def clipped(part: Contribution, limit: float) -> Contribution:
    """A user's contribution with every number clipped."""
    return Contribution(part.items, {n: np.clip(block, -limit, limit) for n, block in part.blocks.items()})


def rounded(part: Contribution, masked: FixedPoint) -> Contribution:
    """A contribution clipped and rounded as under secure aggregation."""
    blocks = clipped(part, masked.clip).blocks
    return Contribution(
        part.items, {n: masked.rounded(torch.from_numpy(block)).numpy() for n, block in blocks.items()}
    )


def _mirror(total: Floats, channels: Channels) -> None:
    """Fill the lower channels of a symmetric total from the upper ones."""
    if channels.symmetric:
        for row in range(channels.rows):
            for column in range(row):
                total[row, :, column] = total[column, :, row].T
