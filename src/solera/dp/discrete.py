"""Exact discrete Gaussian noise: integers k with probability proportional to exp(−k² / 2σ²).

The rejection sampler of Canonne, Kamath & Steinke (NeurIPS 2020) for integer σ, vectorised. All decisions use
integers from the operating system's secure generator, so the output has no floating-point rounding
(Mironov, CCS 2012). A candidate is drawn from a discrete Laplace distribution of scale σ, and accepted with
probability exp(−γ), where with a = ||k| − σ| = qσ + r

    γ = a² / 2σ² = q² / 2 + q · r/σ + (r/σ)² / 2.

That is a product of events of probability exp(−½), exp(−r/σ) and exp(−(r/σ)² / 2), each of which is decided
by coins of probability r/σ, ½ and 1/k. The running time does not depend on the protected data.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solera.core.types import Ints

Coins = NDArray[np.bool_]
LARGEST = 1 << 40  # σ: up to here, draws fit into 64-bit integers
_CHUNK = 1 << 16  # numbers at a time, to stay in the processor's cache


def discrete_gaussian(sigma: int, count: int) -> Ints:
    """Draw `count` independent values."""
    if not 0 < sigma <= LARGEST:
        raise ValueError(f"σ is a whole number from 1 to {LARGEST}, not {sigma}")
    drawn = np.empty(count, np.int64)
    for begin in range(0, count, _CHUNK):
        wanted = min(_CHUNK, count - begin)
        have = 0
        while have < wanted:
            found = _accepted(_laplace(sigma, 2 * (wanted - have) + 16), sigma)[: wanted - have]
            drawn[begin + have : begin + have + len(found)] = found
            have += len(found)
    return drawn


def uniform(below: int | Ints, count: int) -> Ints:
    """Draw uniform integers from 0 up to, but excluding, `below`, which may differ between draws."""
    limits = np.broadcast_to(np.asarray(below, np.uint64), (count,))
    # All bits up to the highest bit of the largest number. Values that are too large are drawn again.
    mask = limits - np.uint64(1)
    for shift in (1, 2, 4, 8, 16, 32):
        mask = mask | mask >> np.uint64(shift)
    found, open_ = np.empty(count, np.uint64), np.arange(count)
    while len(open_):
        bits = np.frombuffer(os.urandom(8 * len(open_)), np.uint64) & mask[open_]
        fits = bits < limits[open_]
        found[open_[fits]] = bits[fits]
        open_ = open_[~fits]
    return found.astype(np.int64)


def _laplace(sigma: int, count: int) -> Ints:
    """Draw with probability proportional to exp(−|k| / σ). Returns about `count` values, or fewer."""
    low = uniform(sigma, count)
    low = low[_exponential(lambda who: _coins(low[who], sigma), count)]
    high = np.zeros(len(low), np.int64)
    going = np.arange(len(low))
    while len(going):  # geometric: with probability exp(−1) one more
        going = going[_exponential(lambda who: np.ones(len(who), np.bool_), len(going))]
        high[going] += 1
    sizes, negative = low + sigma * high, uniform(2, len(low)) == 1
    kept = ~(negative & (sizes == 0))  # otherwise 0 would count twice
    drawn: Ints = np.where(negative, -sizes, sizes)[kept]
    return drawn


def _accepted(candidates: Ints, sigma: int) -> Ints:
    """The accepted candidates."""
    whole, rest = np.divmod(np.abs(np.abs(candidates) - sigma), sigma)
    kept = np.arange(len(candidates))
    kept = kept[
        _exponential(lambda who: _coins(rest[who], sigma) & _coins(rest[who], sigma) & _half(who), len(kept))
    ]
    for step in range(int(whole.max(initial=0))):
        # The step-th of q steps: 2·step + 1 halves, and r/σ once.
        going = np.flatnonzero(whole[kept] > step)
        alive = np.ones(len(kept), np.bool_)
        for _ in range(2 * step + 1):
            going = going[_exponential(_half, len(going))]
        mine = rest[kept[going]]
        going = going[_exponential(lambda who: _coins(mine[who], sigma), len(going))]  # noqa: B023 - used at once
        alive[whole[kept] > step] = False
        alive[going] = True
        kept = kept[alive]
    return candidates[kept]


def _exponential(coin: Callable[[Ints], Coins], count: int) -> Coins:
    """Draw events of probability exp(−x). `coin` tosses coins of probability x ≤ 1 for the given indices.

    Toss with probability x/k, for k = 1, 2, … until one fails: it fails at an odd k with probability exp(−x)
    (von Neumann 1951; Forsythe 1972).
    """
    odd, going, k = np.zeros(count, np.bool_), np.arange(count), 1
    while len(going):
        heads = coin(going)
        if k > 1:
            heads &= uniform(k, len(going)) == 0
        if k % 2:
            odd[going[~heads]] = True
        going, k = going[heads], k + 1
    return odd


def _coins(numerators: Ints, denominator: int) -> Coins:
    """Toss coins of probability numerator / denominator."""
    heads: Coins = uniform(denominator, len(numerators)) < numerators
    return heads


def _half(who: Ints) -> Coins:
    heads: Coins = uniform(2, len(who)) == 1
    return heads
