"""The setup that all parties of a round agree on, and the encoding of values that is a part of it.

**Encoding.** Floats as integers modulo 2^32 or 2^64, which masks can hide and whose sum cannot wrap.

A value x of a part with clip c and f fractional bits becomes the integer nearest to 2^f · x', where x' is x
clipped to [−c, c], modulo M = 2^bits. One ulp is 2^−f. With n clients every integer sum s has

    |s|  ≤  n · q,      q = 2^f · c rounded,      as rounding is monotone,

so it is read back without doubt from its residue, as the one of least absolute value, if

    n · q  ≤  M/2 − 1.

Parameters without this are refused. So are those with n · q > 2^53, where a double no longer holds every
integer. What is left is the rounding of the inputs: half an ulp each, n/2 ulp in the sum.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from solera.core.frozen import Frozen
from solera.core.types import Floats
from solera.privacy.identity import MAX_KEY_BYTES, SecAggError, read_identity
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


MAX_BYTES = 1 << 21  # of a setup on the wire


class Setup(BaseModel):
    """Session, round, members, threshold and encoding. Its digest is in all that is sent, signed or derived.

    `roster` holds the members' public keys (`public_identity`); a client's number is its place there. Against
    a server that invents members no protocol helps: a node must know the keys by another way than from it.
    `threshold` members must stay to the end. It is more than half, or a server could lead two groups to two
    results, and more than any group of members that work together: a node that is sent a setup looks whether
    roster and threshold are large enough for its taste.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64", allow_inf_nan=False
    )

    session: bytes = Field(min_length=16, max_length=32, description="random, made once by the server")
    round: int = Field(ge=0, lt=1 << 32)
    threshold: int
    encoding: Encoding
    roster: tuple[Annotated[bytes, Field(max_length=MAX_KEY_BYTES)], ...] = Field(max_length=MAX_CLIENTS)

    @field_validator("roster")
    @classmethod
    def _known_kinds(cls, roster: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if len(set(roster)) != len(roster):
            raise ValueError("a key is listed twice")
        for key in roster:
            try:
                read_identity(key)
            except SecAggError as error:
                raise ValueError(error.message) from None
        return roster

    @model_validator(mode="after")
    def _fits(self) -> Self:
        n = len(self.roster)
        if not n // 2 < self.threshold <= n or self.threshold < 2:
            raise ValueError(f"the threshold must be more than half of {n} members, and at least 2")
        if self.encoding.clients < n:
            raise ValueError(f"the encoding is for {self.encoding.clients} clients, the roster has {n}")
        return self

    @property
    def context(self) -> bytes:
        """SHA-256 digest of the setup."""
        return _digest(self)

    def purpose(self, what: str, *numbers: int) -> bytes:
        """What a key is for or a signature says, here and nowhere else."""
        return b"\0".join(
            [b"solera secagg 1", what.encode(), self.context + b"".join(n.to_bytes(2) for n in numbers)]
        )

    def to_bytes(self) -> bytes:
        """For the wire, as JSON."""
        return self.model_dump_json().encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, trusted: Collection[bytes] | None = None) -> Self:
        """From the wire; of `trusted` keys alone, if given."""
        if len(data) > MAX_BYTES:
            raise SecAggError("a setup is too long")
        try:
            setup = cls.model_validate_json(data)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"]))
            raise SecAggError(f"not a valid setup: {where}: {wrong['msg']}") from None
        if trusted is not None and not set(setup.roster) <= set(trusted):
            raise SecAggError("the roster has a member that is not trusted")
        return setup


@lru_cache(maxsize=16)
def _digest(setup: Setup) -> bytes:
    text = json.dumps(setup.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(b"solera secagg 1 setup\0" + text.encode()).digest()
