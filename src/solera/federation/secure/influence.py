"""How far one user may move a number: a bound that follows from what the others send.

The largest number that a user's upload has is the user's peak. After every round the bound for the next one
is a few times the median peak, which no minority of users sets. Under masks the server learns no single peak:
nodes add up a histogram of their users' peaks, by powers of two, under the same masks as the rest.

Honest nodes cut their users' numbers off at the bound. Under masks the encoding has no room for more; in
plain rounds the server refuses what is larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FACTOR = 8.0  # of the median peak
BUCKETS = 64  # of a histogram of peaks
_LEAST = -32  # the first bucket has peaks up to 2^_LEAST
_STEP = 0.5  # the bound falls by no more than that from round to round


def histogram(peaks: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """How many users have a peak in (2^(k-1), 2^k], for every k."""
    found = np.zeros(BUCKETS)
    for peak in peaks:
        place = math.ceil(math.log2(peak)) - _LEAST if peak > 0 else 0
        found[min(max(place, 0), BUCKETS - 1)] += 1
    return found


def median_of(counts: NDArray[np.float64]) -> float | None:
    """The upper end of the bucket with the median user; None if there is no user."""
    counts = np.maximum(counts, 0)
    total = counts.sum()
    if not total > 0:
        return None
    return math.ldexp(1.0, int(np.searchsorted(np.cumsum(counts), total / 2)) + _LEAST)


def next_bound(now: float | None, medians: Sequence[float]) -> float | None:
    """The bound of the next round, from the median peaks of several groups or nodes."""
    usable = [median for median in medians if median > 0 and math.isfinite(median)]
    if not usable:
        return now
    wanted = FACTOR * float(np.median(usable))
    return wanted if now is None else max(wanted, _STEP * now)
