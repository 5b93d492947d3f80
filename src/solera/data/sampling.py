"""A client's samples of one round: its positives, negatives drawn anew, and the order of its batches.

Everything is computed for many clients at once, and gives each client exactly what it would draw alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from solera.core.arrays import Ints
from solera.core.errors import DataError
from solera.core.randomness import Bits, Purpose, Streams, below, client_keys, draws
from solera.data.ragged import Ragged

_WHOLE_MASS = 2**40  # of all items together, about; times 4 million clients still fits into 63 bits
_SAMPLE_BITS, _RANDOM_BITS = 24, 24  # up to 16 million samples of 32 thousand clients are shuffled at once


@dataclass(frozen=True)
class ClientData:
    """What the clients of a simulation hold: training items, and what is never a negative (sorted).

    A negative comes up in proportion to its whole-numbered `mass`; without any, all items weigh alike.
    Clients that are some of a larger federation draw by the `numbers` they have there.
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
        """The numbers by which clients draw."""
        return clients if self.numbers is None else self.numbers[clients]

    @cached_property
    def mass_before(self) -> Ints:
        """The mass of all items before each, and in the end of all of them: [n_items + 1]."""
        if self.mass is None:
            return np.arange(self.n_items + 1)
        return np.concatenate([[0], np.cumsum(self.mass)])

    def by_popularity(self, power: float) -> ClientData:
        """The same with masses in proportion to (number of clients who train on the item + 1)^power."""
        popularity = (np.bincount(self.train.values, minlength=self.n_items) + 1.0) ** power
        mass = np.rint(popularity * (_WHOLE_MASS / popularity.sum())).astype(np.int64)
        return replace(self, mass=np.maximum(mass, 1))


@dataclass(frozen=True)
class Samples:
    """Samples of some clients, one client after the other; each client's positives come first."""

    items: Ragged
    positives: Ints  # how many of a client's samples are positives

    @property
    def negatives(self) -> Ragged:
        """What was drawn, without the positives."""
        lengths = self.items.lengths
        place = np.arange(len(self.items.values)) - np.repeat(self.items.offsets[:-1], lengths)
        drawn = place >= np.repeat(self.positives, lengths)
        return Ragged.of_lengths(lengths - self.positives, self.items.values[drawn])


def sample(data: ClientData, clients: Ints, negatives: int, seed: int, round_: int) -> Samples:
    """Every training item once, and for each of them `negatives` items drawn by mass with replacement."""
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
    """`counts[c]` items of each client's catalogue without its excluded items, ascending.

    All items stand side by side, each as wide as its mass, the excluded ones e_0 < e_1 < … taken out. What is
    found at r there was at r + Σ mass(e_j) before, over all j with (mass before e_j) − Σ_k<j mass(e_k) ≤ r.
    """
    before = data.mass_before
    whole, start = before[-1], before[excluded.values]
    taken = np.concatenate([[0], np.cumsum(before[excluded.values + 1] - start)])  # by all clients so far
    by_former = taken[excluded.offsets[:-1]]
    thresholds = excluded.rows * whole + start - (taken[:-1] - np.repeat(by_former, excluded.lengths))
    free = whole - np.diff(taken[excluded.offsets])
    base = np.repeat(np.arange(len(counts)) * whole, counts)
    # In any order: samples are shuffled later, and a sorted search is faster.
    asked = np.sort(base + below(bits, np.repeat(free, counts)))
    skipped = taken[np.searchsorted(thresholds, asked, side="right")] - np.repeat(by_former, counts)
    place: Ints = asked - base + skipped
    return place if data.mass is None else np.searchsorted(before, place, side="right") - 1


def shuffles(lengths: Ints, clients: Ints, epochs: int, seed: int, round_: int) -> Ints:
    """For every epoch the samples of each client in random order: [epochs, sum(lengths)] sample numbers.

    `clients` are the numbers they draw by. They keep their places one after the other. Sorting (client,
    random bits, sample) packed into one integer is much faster than sorting each client.
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
