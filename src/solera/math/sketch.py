"""Sketches of the sums of one-round methods: short, dense and linear, so that masks can hide them.

A client's part of a sum is zero outside its own items. Under the masks of secure aggregation every entry must
be sent, zero or not, or the pattern would be visible: items² numbers. A sketch is shorter. It is linear, so
the sketch of the sum is the sum of the clients' sketches.

For a symmetric sum G = Σ_u G_u without negative eigenvalues, as in FedEASE, and a public test matrix Ω,
[items, size]:

    client:     Y_u = G_u Ω                     for G_u = x xᵀ: at the own items the sum of Ω's rows there
    server:     Y = Σ_u Y_u = G Ω,     Ĝ = Y (ΩᵀY)⁺ Yᵀ

This is Nyström's approximation (Tropp et al., "Fixed-rank approximation of a positive-semidefinite matrix
from streaming data", NeurIPS 2017). Ĝ never exceeds G and equals it if its rank is at most `size`. For
Gaussian Ω the sum of the eigenvalues of G − Ĝ is at most 1 + k / (size − k − 1) times the residual of the
best matrix of rank k, on average and for every k < size − 1. A ridge suppresses small eigenvalues anyway.

Other sums, as in FedSLIST, have no such form: a loss of rank is a loss of accuracy there, and whole sums are
the better choice.

Test matrices have entries ±1. The sketch of counts then consists of integers no larger than the length of the
history, and fixed-point encoding with `fraction_bits` 0 and that clip is exact. A test matrix hides nothing;
masks do. The server learns Y, so no more than it would from the sum itself.

Hashing pairs of items into buckets (a count sketch) is linear too, but spreads its error evenly over all
directions, where the ridge does not help.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from solera.core.types import Floats, Ints

Signs = NDArray[np.int8]

_ZERO = 1e-10  # eigenvalues below this fraction of the largest count as zero


def signs(rows: int, size: int, seed: int) -> Signs:
    """A test matrix of ±1 that depends only on the seed. One with more rows starts with the same rows."""
    return np.random.default_rng(seed).integers(0, 2, (rows, size), dtype=np.int8) * np.int8(2) - np.int8(1)


def of_items(items: Ints, size: int) -> Signs:
    """Rows [m, size] of the common test matrix for the given items, independent of the number of items."""
    return _whole(1 << int(items.max()).bit_length(), size)[items]


@lru_cache(maxsize=4)
def _whole(rows: int, size: int) -> Signs:
    return signs(rows, size, seed=0)


def symmetric_from(sketch: Floats, test: Signs) -> Floats:
    """Ĝ = Y (ΩᵀY)⁺ Yᵀ, without the directions of the small matrix that are only rounding errors."""
    core = test.T @ sketch
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    kept = values > _ZERO * max(values[-1], 0.0)
    half = sketch @ (vectors[:, kept] / np.sqrt(values[kept]))
    found: Floats = half @ half.T
    return found
