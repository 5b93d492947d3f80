"""Floats as integers modulo 2^32 or 2^64, which masks can hide and whose sum cannot wrap.

A value x of a part with clip c and f fractional bits becomes the integer nearest to 2^f · x', where x' is x
clipped to [−c, c], modulo M = 2^bits. One ulp is 2^−f. With n clients every integer sum s has

    |s|  ≤  n · q,      q = 2^f · c rounded,      as rounding is monotone,

so it is read back without doubt from its residue, as the one of least absolute value, if

    n · q  ≤  M/2 − 1.

Parameters without this are refused. So are those with n · q > 2^53, where a double no longer holds every
integer. What is left is the rounding of the inputs: half an ulp each, n/2 ulp in the sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from solera.core.types import Floats, Frozen
from solera.privacy.secagg.errors import SecAggError
from solera.privacy.secagg.primitives import Ring

MAX_CLIENTS = 4096
MAX_VALUES = 1 << 27
_STEP = 1 << 14  # values at a time: they stay in the processor's cache


class Part(Frozen):
    """Values of one name and one range: a model's rows, say, or a client's weight."""

    name: str = Field(min_length=1, max_length=64)
    length: int = Field(ge=1, le=MAX_VALUES)
    clip: float = Field(gt=0, le=2.0**53, description="c: larger values are cut off")
    fraction_bits: int = Field(ge=0, le=52, description="f")

    @property
    def largest(self) -> int:
        """q: the largest integer that a value becomes."""
        return round(math.ldexp(self.clip, self.fraction_bits))


class Encoding(BaseModel):
    """Parts that are summed together, one after the other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    clients: int = Field(ge=2, le=MAX_CLIENTS, description="n: how many may be summed")
    parts: tuple[Part, ...] = Field(min_length=1, max_length=1000)
    bits: Literal[32, 64] = 32

    @model_validator(mode="after")
    def _cannot_wrap(self) -> Self:
        bound = min((1 << self.bits - 1) - 1, 1 << 53)
        for part in self.parts:
            if part.largest == 0:
                raise ValueError(f"{part.name!r}: all values would become 0: use more fraction_bits")
            if self.clients * part.largest > bound:
                raise ValueError(
                    f"{part.name!r}: {self.clients} clients × {part.largest} could exceed {bound}:"
                    " use fewer fraction_bits, a smaller clip, or bits=64"
                )
        if len({part.name for part in self.parts}) != len(self.parts):
            raise ValueError("two parts have the same name")
        if self.length > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values")
        return self

    @property
    def length(self) -> int:
        """Total length of all parts."""
        return sum(part.length for part in self.parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Integer type, in memory and on the wire."""
        return np.dtype(f"<u{self.bits // 8}")

    @property
    def nbytes(self) -> int:
        """Size of an encoded vector in bytes."""
        return self.length * self.dtype.itemsize

    def encode(self, values: Mapping[str, ArrayLike]) -> Ring:
        """Encode the values of all parts, given by name and of any shape."""
        if values.keys() != {part.name for part in self.parts}:
            raise SecAggError(f"the values are not those of the parts {[part.name for part in self.parts]}")
        encoded = np.empty(self.length, self.dtype)
        begin = 0
        for part in self.parts:
            given = np.asarray(values[part.name]).reshape(-1)
            if len(given) != part.length:
                raise SecAggError(f"{part.name!r} has {len(given)} values, not {part.length}")
            for at in range(0, part.length, _STEP):
                some = given[at : at + _STEP]
                encoded[begin + at : begin + at + len(some)] = self._encoded(part, some)
            begin += part.length
        return encoded

    def _encoded(self, part: Part, some: NDArray[Any]) -> Ring:
        values = some.astype(np.float64)
        if not np.isfinite(values).all():
            raise SecAggError(f"{part.name!r} has values that are not finite")
        np.clip(values, -part.clip, part.clip, out=values)
        values *= math.ldexp(1.0, part.fraction_bits)
        encoded: Ring = np.rint(values, out=values).astype(f"<i{self.bits // 8}").view(self.dtype)
        return encoded

    def decode(self, total: Ring) -> dict[str, Floats]:
        """Decode the sum of the inputs, by part."""
        signed = total.view(f"<i{self.bits // 8}").astype(np.float64)
        found, begin = {}, 0
        for part in self.parts:
            found[part.name] = signed[begin : begin + part.length] * math.ldexp(1.0, -part.fraction_bits)
            begin += part.length
        return found
