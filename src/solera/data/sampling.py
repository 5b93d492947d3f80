"""A client's samples of one round: its positives, negatives drawn anew, and the order of its batches.

Everything is computed for many clients at once, and gives each client exactly what it would draw alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solera.core.errors import DataError
from solera.core.randomness import Purpose, Streams, below, client_keys, draws
from solera.data.ragged import Ints, Ragged

_SAMPLE_BITS, _RANDOM_BITS = 24, 24  # up to 16 million samples of 32 thousand clients are shuffled at once


@dataclass(frozen=True)
class ClientData:
    """What the clients of a simulation hold: training items, and what is never a negative (sorted)."""

    train: Ragged
    excluded: Ragged
    n_items: int

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.train)


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
    """Every training item once, and for each of them `negatives` items drawn uniformly with replacement."""
    train = data.train.take(clients)
    excluded = data.excluded.take(clients)
    counts = train.lengths * negatives
    free = data.n_items - excluded.lengths
    if len(clients) and free.min() <= 0:
        who = int(clients[int(free.argmin())])
        raise DataError(
            f"user number {who} has interacted with every item", "leave such users out: no negatives"
        )
    bits = draws(client_keys(seed, Purpose.NEGATIVES, round_, clients), counts)
    drawn = below(bits, np.repeat(free, counts))
    return Samples(
        train.concat(Ragged.of_lengths(counts, _skip(drawn, counts, excluded, data.n_items))), train.lengths
    )


def _skip(drawn: Ints, counts: Ints, excluded: Ragged, n_items: int) -> Ints:
    """The `drawn`-th items of each client's catalogue without its excluded items, ascending.

    With excluded items e_0 < e_1 < …, the k-th free item is k plus the number of j with e_j − j ≤ k.
    """
    rank = np.arange(len(excluded.values)) - np.repeat(excluded.offsets[:-1], excluded.lengths)
    thresholds = excluded.rows * n_items + (excluded.values - rank)
    base = np.repeat(np.arange(len(counts)) * n_items, counts)
    asked = np.sort(base + drawn)  # in any order: samples are shuffled later, and a sorted search is faster
    below_or_equal = np.searchsorted(thresholds, asked, side="right")
    return asked - base + below_or_equal - np.repeat(excluded.offsets[:-1], counts)


def shuffles(lengths: Ints, clients: Ints, epochs: int, seed: int, round_: int) -> Ints:
    """For every epoch the samples of each client in random order: [epochs, sum(lengths)] sample numbers.

    Clients keep their places one after the other. Sorting (client, random bits, sample) packed into one
    integer is much faster than sorting each client.
    """
    total = int(lengths.sum())
    if total >= 1 << _SAMPLE_BITS or len(lengths) >= 1 << (63 - _SAMPLE_BITS - _RANDOM_BITS):
        raise ValueError("too many samples at once: take fewer clients")
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
