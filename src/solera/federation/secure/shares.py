"""Distributed noise: every node adds a share to its masked sum, so the server need not be trusted.

A sum is opened over at least a threshold k of nodes. Each adds discrete Gaussian noise of 1/√k of the
standard deviation, drawn from its own operating system, so there is at least all of it on whatever is opened.
The noise is added to the whole numbers of the encoding, after everything is rounded: floating-point numbers
have no part in it. Which rows were touched, by how many, and how many have trained is not sent: nothing
covers it.

What ε rests on:

- one user moves the whole numbers of a sum by at most clip · 2^f + √(2d) · (1 + drift), in L2: the clip, and
  the rounding of d sums in doubles with and without the user (2d, as a number beside a diagonal counts
  twice). `whole_share` makes the noise larger by that much
- under a shift by whole numbers, discrete Gaussian noise has the Rényi divergences of normal noise, also
  where users are sampled: see `accounting`
- a sum of k shares is nearly a discrete Gaussian: probabilities differ by a factor of at most e^±τ with
  τ = 10 k exp(−π² σ²) a number (Kairouz, Liu & Steinke, ICML 2021). No share has σ below 4 ulp: τ < 1e-60
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import AnyMethod, ClosedForm
from solera.core.fixed_point import ROW_WEIGHTS, USERS, WEIGHT, FixedPoint, is_half, sum_blocks
from solera.core.method import Method
from solera.core.types import Floats, Ints
from solera.core.upload import Sums
from solera.dp.discrete import LARGEST
from solera.dp.noise import Noise, System
from solera.dp.rounds import PrivateRound
from solera.federation.common.protocol import Reason, RefusalError
from solera.federation.secure.masked import PEAKS, changes_of
from solera.privacy.secagg import Encoding
from solera.privacy.secagg.primitives import Ring

Draw = Callable[[int, int], Ints]  # σ and how many
_UNCOVERED = (ROW_WEIGHTS, WEIGHT, USERS, PEAKS)
_LEAST_SIGMA = 4
_ROUNDING = 1 + 1e-9  # of a clip in doubles


def whole_share(fixed: FixedPoint, length: int, *, clip: float, std: float, users: int) -> int:
    """σ of one node's share in ulps, of a noise of `std` on a vector of that length."""
    ulps = math.ldexp(1.0, fixed.fraction_bits)
    drift = users * math.ldexp(1.0, -22 if fixed.bits == 32 else 0)  # of a sum of doubles, in ulps
    longest = clip * ulps * _ROUNDING + (1 + drift) * math.sqrt(2 * length)
    sigma = max(_LEAST_SIGMA, math.ceil(std / clip * longest))
    if sigma > LARGEST:
        raise RefusalError(Reason.SECURE, f"noise of {sigma} ulp is too large to sample: lower clip or noise")
    return sigma


def add_share(
    method: AnyMethod, n_items: int, encoding: Encoding, vector: Ring, *, sigma: int, draw: Draw
) -> None:
    """Noise on all numbers of an encoded sum, in place; what no noise covers becomes zero."""
    diagonals = _diagonals(method, n_items) if method.one_round else {}
    begin = 0
    for part in encoding.parts:
        some = vector[begin : begin + part.length]
        begin += part.length
        if part.name in _UNCOVERED:
            some[:] = 0
            continue
        if part.name not in diagonals:
            drawn = draw(sigma, part.length)
        else:
            drawn = draw(math.ceil(sigma * math.sqrt(0.5)), part.length)
            on_diagonal = diagonals[part.name]
            drawn[on_diagonal] = draw(sigma, len(on_diagonal))
        some += drawn.astype(vector.dtype)  # modulo its size


def covered_sums(method: Method, n_items: int, values: Mapping[str, Floats]) -> Sums:
    """The sum over all nodes as an upload, of which only the changes mean anything."""
    rows = torch.arange(n_items)
    return Sums(
        rows, torch.ones(n_items, dtype=torch.float64), 1.0, changes_of(method, n_items, values, rows)
    )


class CoveredRound(PrivateRound):
    """A round whose sum comes with its noise; it is divided by the number of clients that was expected."""

    def take_sums(self, sums: Sums) -> Sums:
        """As it is: under noise, there is no telling how long it may be."""
        return sums

    @property
    def given_up(self) -> bool:
        """Never: a sum over fewer nodes than the threshold is not opened."""
        return False


class AlreadyCovered(System):
    """All the noise that is left to be added: none."""

    def noise(self, round_: int) -> Noise:
        """Zeros."""
        return _Zeros()


class _Zeros:
    def cover(self, sums: Tensor, std: float, clip: float) -> Tensor:
        return sums

    def cover_symmetric(self, matrix: Tensor, std: float, clip: float) -> None:
        pass


def _diagonals(method: ClosedForm, n_items: int) -> dict[str, Ints]:
    """Of the blocks of symmetric sums, where the diagonal is.

    A number beside it stands for two, and gets 1/√2 of the noise; see `one_round`. Half a block has rows of
    n, n − 1, … numbers, each of which begins on the diagonal.
    """
    lengths = np.arange(n_items, 0, -1)
    half, none = np.cumsum(lengths) - lengths, np.zeros(0, np.int64)
    return {
        name: half if is_half(method, of, row, column) else none
        for name, of, row, column in sum_blocks(method)
        if method.update.sums[of].symmetric
    }
