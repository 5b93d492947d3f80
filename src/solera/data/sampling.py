"""A client's samples in one round: its positives, newly drawn negatives, and the order of its batches.

Everything is computed for many clients at once. Each client gets exactly what it would draw on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from solera.core.errors import DataError
from solera.core.randomness import Bits, Purpose, Streams, below, client_keys, draws
from solera.core.types import Ints
from solera.data.ragged import Ragged

_WHOLE_MASS = 2**40  # approximate total over all items; times 4 million clients it still fits into 63 bits
_SAMPLE_BITS, _RANDOM_BITS = 24, 24  # enough to shuffle 16 million samples of 32 thousand clients at once


@dataclass(frozen=True)
class ClientData:
    """The data of simulated clients: training items, and sorted items that are never drawn as negatives.

    Negatives are drawn in proportion to their integer `mass`; without it, all items weigh the same. Clients
    that are part of a larger federation draw with their `numbers` there.
    """

    train: Ragged
    excluded: Ragged
    n_items: int
    mass: Ints | None = None
    numbers: Ints | None = None

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.train)

    def drawn_by(self, clients: Ints) -> Ints:
        """The client numbers that select the random streams."""
        return clients if self.numbers is None else self.numbers[clients]

    @cached_property
    def mass_before(self) -> Ints:
        """The cumulative mass before each item, followed by the total: [n_items + 1]."""
        if self.mass is None:
            return np.arange(self.n_items + 1)
        return np.concatenate([[0], np.cumsum(self.mass)])

    def by_popularity(self, power: float) -> ClientData:
        """A copy with masses in proportion to (number of clients who train on the item + 1)^power."""
        popularity = (np.bincount(self.train.values, minlength=self.n_items) + 1.0) ** power
        mass = np.rint(popularity * (_WHOLE_MASS / popularity.sum())).astype(np.int64)
        return replace(self, mass=np.maximum(mass, 1))


@dataclass(frozen=True)
class Samples:
    """Samples of several clients, one client after the other. Each client's positives come first."""

    items: Ragged
    positives: Ints  # number of positives of each client

    @cached_property
    def places(self) -> Ints:
        """The place of every sample among those of its client, from 0."""
        return np.arange(len(self.items.values)) - np.repeat(self.items.offsets[:-1], self.items.lengths)

    @cached_property
    def are_positive(self) -> NDArray[np.bool_]:
        """Whether each sample is a positive."""
        return self.places < np.repeat(self.positives, self.items.lengths)

    @property
    def negatives(self) -> Ragged:
        """The drawn negatives, without the positives."""
        return Ragged.of_lengths(self.items.lengths - self.positives, self.items.values[~self.are_positive])


def sample(data: ClientData, clients: Ints, negatives: int, seed: int, round_: int) -> Samples:
    """Draw the samples: every training item once, and for each `negatives` items by mass with replacement."""
    train = data.train.take(clients)
    excluded = data.excluded.take(clients)
    counts = train.lengths * negatives
    free = data.n_items - excluded.lengths
    if len(clients) and free.min() <= 0:
        who = int(clients[int(free.argmin())])
        raise DataError(
            f"user number {who} has interacted with every item",
            "remove such users: there are no negatives to sample for them",
        )
    bits = draws(client_keys(seed, Purpose.NEGATIVES, round_, data.drawn_by(clients)), counts)
    drawn = _draw(data, bits, counts, excluded)
    return Samples(train.concat(Ragged.of_lengths(counts, drawn)), train.lengths)


def _draw(data: ClientData, bits: Bits, counts: Ints, excluded: Ragged) -> Ints:
    """Draw `counts[c]` items for every client c, without the client's excluded items; ascending.

    Lay out all items side by side, each as wide as its mass, and remove the excluded ones e_0 < e_1 < ….
    Position r of what remains was at r + Σ mass(e_j) before, over all j with (mass before e_j) − Σ_k<j
    mass(e_k) ≤ r.
    """
    before = data.mass_before
    whole, start = before[-1], before[excluded.values]
    taken = np.concatenate([[0], np.cumsum(before[excluded.values + 1] - start)])  # over all clients
    by_former = taken[excluded.offsets[:-1]]
    thresholds = excluded.rows * whole + start - (taken[:-1] - np.repeat(by_former, excluded.lengths))
    free = whole - np.diff(taken[excluded.offsets])
    base = np.repeat(np.arange(len(counts)) * whole, counts)
    # The order does not matter: samples are shuffled later, and a sorted search is faster.
    asked = np.sort(base + below(bits, np.repeat(free, counts)))
    skipped = taken[np.searchsorted(thresholds, asked, side="right")] - np.repeat(by_former, counts)
    place: Ints = asked - base + skipped
    return place if data.mass is None else np.searchsorted(before, place, side="right") - 1


def shuffles(lengths: Ints, clients: Ints, epochs: int, seed: int, round_: int) -> Ints:
    """Shuffle each client's samples for every epoch: [epochs, sum(lengths)] sample numbers.

    `clients` are the numbers they draw by. Clients stay in the same order. Sorting (client, random bits,
    sample) packed into one integer is much faster than sorting each client.
    """
    total = int(lengths.sum())
    if total >= 1 << _SAMPLE_BITS or len(lengths) >= 1 << (63 - _SAMPLE_BITS - _RANDOM_BITS):
        raise ValueError("too many samples at once: use fewer clients")
    streams = Streams(client_keys(seed, Purpose.SHUFFLE, round_, clients), lengths)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    fixed = (owner << (_SAMPLE_BITS + _RANDOM_BITS) | np.arange(total)).astype(np.uint64)
    orders = np.empty((epochs, total), dtype=np.int64)
    for epoch in range(epochs):
        packed = streams.next() >> np.uint64(64 - _RANDOM_BITS)
        packed <<= np.uint64(_SAMPLE_BITS)
        packed |= fixed
        packed.sort()
        np.bitwise_and(packed, np.uint64((1 << _SAMPLE_BITS) - 1), out=orders[epoch], casting="unsafe")
    return orders
