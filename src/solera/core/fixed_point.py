"""Uploads as whole numbers, the only ones that the masks of secure aggregation can hide.

A number x that one user sends is cut off at ± clip; the sum over the users of one place, times their weights,
is rounded to a multiple of one ulp, 2^−f. Added up over all places these are exact, so the order does not
show. f follows from the largest sum that there can be, so that it never wraps:

    places · 2^f · clip · heaviest  ≤  2^31 − 1,     heaviest = users in one place × the largest weight of one

or, where that leaves too few fractional bits, 2^53 in numbers of 64 bits. Weights and numbers of users are
whole as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from solera.core.closed_form import ClosedForm
from solera.core.errors import ConfigError
from solera.core.federated import AnyMethod

ROW_WEIGHTS, WEIGHT, USERS = "row_weights", "weight", "users"  # parts of an upload beside its changes
CLIP = 4096.0  # of one user's change of one number: tuned PFedRec has come to 1300 on ml-100k
_RANGE: dict[int, int] = {32: (1 << 31) - 1, 64: 1 << 53}
_LEAST_BITS, _LEAST_BITS_OF_SUMS = 16, 8  # for the fraction, below which 32 in all are too few
_MOST_BITS = 52  # for the fraction: a double has no more


@dataclass(frozen=True)
class FixedPoint:
    """How the numbers of one upload are written."""

    clip: float  # of one user's number
    heaviest: int  # the largest weight that the users of one place have together
    fraction_bits: int
    bits: Literal[32, 64]
    margin: float = 0.0  # what one place may add beside its users' numbers: noise

    @classmethod
    def of(
        cls,
        method: AnyMethod,
        n_items: int,
        *,
        places: int,
        users: int = 1,
        bound: float | None = None,
        margin: float = 0.0,
    ) -> FixedPoint:
        """For a method's uploads from so many places with at most so many users each.

        `bound` is what one user's numbers are known to be cut off at, if that is known.
        """
        check_summable(method)
        heaviest = users * (n_items if method.weighted else 1)
        clip = min(largest_number(method), bound or math.inf)
        largest = places * (clip * heaviest + margin)
        narrow, wide = (_fraction_bits(bits, largest) for bits in (32, 64))
        if wide < 0 or places * heaviest > _RANGE[64]:
            raise ConfigError(
                f"sums over {places:,} × {users:,} users of {n_items:,} items do not fit into 64 bits",
                "lower the number of users per round",
            )
        least = _LEAST_BITS_OF_SUMS if isinstance(method, ClosedForm) else _LEAST_BITS
        if narrow < least:
            return cls(clip, heaviest, wide, 64, margin)
        return cls(clip, heaviest, narrow, 32, margin)

    @property
    def largest(self) -> float:
        """The largest number that one place sends."""
        return self.clip * self.heaviest + self.margin

    def rounded(self, values: Tensor) -> Tensor:
        """Multiples of one ulp, nearest to the values; exact in double precision."""
        scale = math.ldexp(1.0, self.fraction_bits)
        return values.double().mul(scale).round_().div_(scale)


def largest_number(method: AnyMethod) -> float:
    """Where every user cuts numbers off, whatever a round says."""
    if isinstance(method, ClosedForm):
        return max(each.largest for each in method.update.sums.values())
    return CLIP


def lengths(method: AnyMethod, n_items: int) -> dict[str, int]:
    """How many numbers every part of an upload has: all rows of all items, whoever touched which.

    Of a symmetric sum's channels, those on the diagonal are symmetric themselves: half of them is enough.
    """
    if isinstance(method, ClosedForm):
        half, sums = n_items * (n_items + 1) // 2, method.update.sums
        blocks = {
            name: half if is_half(method, of, row, column) else n_items * sums[of].shape(n_items)[-1]
            for name, of, row, column in sum_blocks(method)
        }
        return blocks | {USERS: 1}
    changes = {
        change(leaf.sent_as): leaf.size * (n_items if leaf.per_item else 1)
        for leaf in method.leaves
        if leaf.sent_as
    }
    return changes | {ROW_WEIGHTS: n_items, WEIGHT: 1, USERS: 1}


def change(leaf: str) -> str:
    """The name of a leaf's change."""
    return f"change/{leaf}"


def sum_blocks(method: ClosedForm) -> Iterator[tuple[str, str, int, int]]:
    """The blocks that travel in a method of one round: name, sum, row and column channel."""
    for of, each in method.update.sums.items():
        for row in range(each.rows):
            for column in range(row if each.symmetric else 0, each.columns):
                yield f"sum/{of}/{row}/{column}", of, row, column


def is_half(method: ClosedForm, of: str, row: int, column: int) -> bool:
    """Whether a block is a symmetric matrix."""
    return method.update.sums[of].symmetric and row == column


def check_summable(method: AnyMethod) -> None:
    """Refuse a method whose server has to see single uploads."""
    if not method.sums_alone:
        raise ConfigError(
            f"the server of {method.name!r} needs single clients' uploads, which secure aggregation hides",
            "omit --secure-aggregation, or use a method whose server needs only sums, such as fedmf",
        )


def _fraction_bits(bits: int, largest: float) -> int:
    return math.floor(min(_MOST_BITS, math.log2(_RANGE[bits] / max(largest, 1e-9))))
