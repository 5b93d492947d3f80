"""Fixed-point encoding of uploads as integers, which the masks of secure aggregation require.

Each number x that a user sends is clipped at ± clip. The weighted sum over the users of one place is rounded
to a multiple of one ulp, 2^−f. Sums of these over all places are exact, so their order does not matter. f
follows from the largest possible sum, so that the sum never wraps around:

    places · 2^f · clip · heaviest  ≤  2^31 − 1,     heaviest = users in one place × the largest weight of one

or, where that leaves too few fractional bits, 2^53 in 64-bit numbers. Weights and numbers of users are
integers already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from solera.core.closed_form import AnyMethod, ClosedForm
from solera.core.errors import ConfigError

ROW_WEIGHTS, WEIGHT, USERS = "row_weights", "weight", "users"  # parts of an upload besides its changes
CLIP = 4096.0  # for one user's change of one number; tuned PFedRec reached 1300 on ml-100k
_RANGE: dict[int, int] = {32: (1 << 31) - 1, 64: 1 << 53}
_LEAST_BITS, _LEAST_BITS_OF_SUMS = 16, 8  # fractional bits, below which 32-bit numbers are too short
_MOST_BITS = 52  # fractional bits: a double has no more


@dataclass(frozen=True)
class FixedPoint:
    """The fixed-point format of one upload."""

    clip: float  # for one user's number
    heaviest: int  # the largest total weight of the users of one place
    fraction_bits: int
    bits: Literal[32, 64]
    margin: float = 0.0  # what one place may add to its users' numbers, for example noise

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
        """The format for a method's uploads from `places` places with at most `users` users each.

        `bound` is the value at which a user's numbers are clipped, if it is known.
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
        least = _LEAST_BITS_OF_SUMS if method.one_round else _LEAST_BITS
        if narrow < least:
            return cls(clip, heaviest, wide, 64, margin)
        return cls(clip, heaviest, narrow, 32, margin)

    @property
    def largest(self) -> float:
        """The largest number that one place sends."""
        return self.clip * self.heaviest + self.margin

    def rounded(self, values: Tensor) -> Tensor:
        """The values rounded to the nearest multiple of one ulp; exact in double precision."""
        return rounded(values, self.fraction_bits)


def rounded(values: Tensor, fraction_bits: int) -> Tensor:
    """The values in double precision, rounded to the nearest multiple of 2^−fraction_bits."""
    scale = math.ldexp(1.0, fraction_bits)
    return values.double().mul(scale).round_().div_(scale)


def largest_number(method: AnyMethod) -> float:
    """The value at which every user clips numbers, independent of the round."""
    if method.one_round:
        return max(each.largest for each in method.update.sums.values())
    return CLIP


def lengths(method: AnyMethod, n_items: int) -> dict[str, int]:
    """The number of values in each part of an upload. All rows are counted, whether touched or not.

    Diagonal channels of a symmetric sum are symmetric matrices, so only half of each is sent.
    """
    if method.one_round:
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
    """The name of a leaf's change in an upload."""
    return f"change/{leaf}"


def sum_blocks(method: ClosedForm) -> Iterator[tuple[str, str, int, int]]:
    """The blocks that a one-round method sends: name, sum, row channel and column channel."""
    for of, each in method.update.sums.items():
        for row in range(each.rows):
            for column in range(row if each.symmetric else 0, each.columns):
                yield f"sum/{of}/{row}/{column}", of, row, column


def is_half(method: ClosedForm, of: str, row: int, column: int) -> bool:
    """Whether a block is a symmetric matrix."""
    return method.update.sums[of].symmetric and row == column


def check_summable(method: AnyMethod) -> None:
    """Raise an error for a method whose server needs single uploads."""
    if not method.sums_alone:
        raise ConfigError(
            f"the server of {method.name!r} needs single clients' uploads, which secure aggregation hides",
            "omit --secure-aggregation, or use a method whose server needs only sums, such as fedmf",
        )
    if method.one_round and method.neighbours:
        raise ConfigError(
            f"{method.name!r} cannot keep its sums sparse under secure aggregation: masks hide which items a "
            "client has, so it would send numbers for all pairs of items",
            "omit -o neighbours=…; fedease with -o sketch=… sends fewer numbers",
        )


def _fraction_bits(bits: int, largest: float) -> int:
    return math.floor(min(_MOST_BITS, math.log2(_RANGE[bits] / max(largest, 1e-9))))
