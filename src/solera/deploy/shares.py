"""Noise in shares: what every node adds to its masked sum, so that no server has to be trusted with it.

A sum is opened over at least a threshold k of nodes. Each adds noise of 1/√k of the standard deviation, drawn
from its own operating system, so there is at least all of it on whatever is opened. Which rows were touched,
by how many, and how many have trained is not sent: nothing covers it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import ClosedForm
from solera.core.fixed_point import ROW_WEIGHTS, USERS, WEIGHT, is_half, sum_blocks
from solera.core.method import Method
from solera.core.upload import Sums
from solera.deploy.masked import Values, changes_of
from solera.privacy.dp.noise import Noise, System
from solera.privacy.dp.rounds import PrivateRound
from solera.privacy.secagg.encoding import Floats

LEAST_NOISE = 0.5  # in clips: with less, it still matters how many users a sum is over


def with_share(
    method: Method | ClosedForm, n_items: int, values: Mapping[str, Floats], std: float, noise: Noise
) -> Values:
    """A node's sum, with noise of that standard deviation on every number."""
    made: Values = {}
    scales = _scales(method, n_items) if isinstance(method, ClosedForm) else {}
    for name, flat in values.items():
        if name in (ROW_WEIGHTS, WEIGHT, USERS):
            made[name] = np.zeros_like(flat)
        else:
            made[name] = flat + noise.normal(flat.shape).numpy() * (std * scales.get(name, 1.0))
    return made


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
    def normal(self, shape: Iterable[int]) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64)


def _scales(method: ClosedForm, n_items: int) -> dict[str, Floats | float]:
    """Of a symmetric matrix, a number beside the diagonal stands for two, and gets 1/√2; see `one_round`."""
    beside = math.sqrt(0.5)
    lengths = np.arange(n_items, 0, -1)  # of the rows of half a block, each of which begins on the diagonal
    half = np.full(lengths.sum(), beside)
    half[np.cumsum(lengths) - lengths] = 1.0
    return {
        name: half if is_half(method, of, row, column) else beside
        for name, of, row, column in sum_blocks(method)
        if method.update.sums[of].symmetric
    }
