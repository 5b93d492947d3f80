"""Sums of vectors with one message from every device: masks whose sum a helper gives away once.

The parties are those of threshold reports: a server, and a helper whom somebody else runs.

    device    seed random,  y = x + mask(seed)  mod 2^b        y to the server, the seed to the helper
    server    D = the devices whose y and seed have come        D to the helper
    helper    m = Σ_D mask(seed), for one D of at least `least_devices`, then all seeds are deleted
    server    Σ_D x = Σ_D y − m

Nobody waits for anybody, where secure aggregation has five exchanges. What it takes is that server and helper
do not work together: both know every x. Alone, the server learns one sum over D, and the helper who is in it.

The server must not speak to the helper in a device's name: devices send their seed themselves, and whoever
runs the helper knows them by keys. A server with k devices of its own in D learns the sum over the others.
What a device sends is checked by nobody: a false seed or vector spoils the sum, and who did it stays unknown.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from solera.core.errors import SoleraError
from solera.privacy.secagg.primitives import SECRET_BYTES, Ring, mask


class OneShotError(SoleraError):
    """A refused vector, seed or request, with the reason. Nothing was told."""


@dataclass(frozen=True)
class VectorTerms:
    """What all parties agree on for one sum."""

    federation: str
    round: int
    length: int  # of a vector
    least_devices: int
    bits: int = 32  # 32 or 64; sums are modulo 2^bits

    def __post_init__(self) -> None:
        """Raise an error if there is no protection in these terms."""
        if self.least_devices < 2 or self.bits not in {32, 64}:
            raise OneShotError("a sum is of at least 2 devices, and of integers of 32 or 64 bits")

    @cached_property
    def context(self) -> bytes:
        """Bytes that no other terms have."""
        numbers = (self.round, self.length, self.least_devices, self.bits)
        return (
            b"solera one shot 1\0" + b"".join(each.to_bytes(8) for each in numbers) + self.federation.encode()
        )

    def zeros(self) -> Ring:
        """A vector of zeros."""
        return np.zeros(self.length, np.uint32) if self.bits == 32 else np.zeros(self.length, np.uint64)

    def vector(self, data: bytes) -> Ring:
        """Bytes as a vector, which cannot be written to."""
        if len(data) != self.length * self.bits // 8:
            raise OneShotError(f"a vector has {self.length} numbers of {self.bits} bits")
        return np.frombuffer(data, "<u4") if self.bits == 32 else np.frombuffer(data, "<u8")


def add_mask(terms: VectorTerms, values: Ring, seed: bytes, *, subtract: bool = False) -> None:
    """Add the mask of a seed, in place. The same seed has another mask under other terms."""
    key = HKDF(SHA256(), length=SECRET_BYTES, salt=terms.context, info=b"mask").derive(seed)
    mask(values, bytes(key), subtract=subtract)


class MaskHelper:
    """Keeps seeds until it has given the sum of their masks away."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute("PRAGMA secure_delete = ON")
        with database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS seeds (context BLOB, device TEXT, seed BLOB NOT NULL,"
                " PRIMARY KEY (context, device))"
            )
            database.execute(
                "CREATE TABLE IF NOT EXISTS told (context BLOB PRIMARY KEY, devices TEXT, masks BLOB)"
            )

    def accept(self, terms: VectorTerms, device: str, seed: bytes) -> None:
        """Keep a device's seed. Of two the first one counts; once the masks were told none is taken."""
        if len(seed) != SECRET_BYTES:
            raise OneShotError(f"a seed has {SECRET_BYTES} bytes")
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if self._told(terms):
                raise OneShotError(f"round {terms.round} is over")
            row = (terms.context, device, seed)
            self._database.execute("INSERT OR IGNORE INTO seeds VALUES (?, ?, ?)", row)

    def devices(self, terms: VectorTerms) -> list[str]:
        """Those whose seeds have come."""
        rows = self._database.execute("SELECT device FROM seeds WHERE context = ?", (terms.context,))
        return sorted(row[0] for row in rows)

    def masks(self, terms: VectorTerms, devices: Collection[str]) -> bytes:
        """The sum of the masks of these devices: once, and to the same question the same again."""
        named = sorted(devices)
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            told = self._told(terms)
            if told:
                if told[0] != "\0".join(named):
                    raise OneShotError(f"round {terms.round} is over: masks of other devices were told")
                return bytes(told[1])
            rows = self._database.execute(
                "SELECT device, seed FROM seeds WHERE context = ?", (terms.context,)
            )
            seeds = dict(rows.fetchall())
            if len(set(named)) < terms.least_devices or len(set(named)) != len(named):
                raise OneShotError(f"a sum is of at least {terms.least_devices} devices, each of them once")
            if missing := set(named) - seeds.keys():
                raise OneShotError(f"the seeds of {len(missing)} devices have not come")
            total = terms.zeros()
            for device in named:
                add_mask(terms, total, seeds[device])
            sent = _bytes(total)
            row = (terms.context, "\0".join(named), sent)
            self._database.execute("INSERT INTO told VALUES (?, ?, ?)", row)
            self._database.execute("DELETE FROM seeds WHERE context = ?", (terms.context,))
        return sent

    def _told(self, terms: VectorTerms) -> tuple[Any, ...] | None:
        rows = self._database.execute("SELECT devices, masks FROM told WHERE context = ?", (terms.context,))
        found: tuple[Any, ...] | None = rows.fetchone()
        return found


def opened_sum(terms: VectorTerms, masked: Collection[bytes], masks: bytes) -> Ring:
    """Σ x, from every y of D and the helper's answer for D."""
    total = terms.zeros()
    for each in masked:
        total += terms.vector(each)
    total -= terms.vector(masks)
    return total


def masked_vector(terms: VectorTerms, values: Ring, seed: bytes) -> bytes:
    """y, what a device sends to the server."""
    if len(values) != terms.length:
        raise OneShotError(f"a vector has {terms.length} numbers")
    sent = terms.zeros()
    sent += values
    add_mask(terms, sent, seed)
    return _bytes(sent)


def _bytes(values: Ring) -> bytes:
    return values.astype(values.dtype.newbyteorder("<")).tobytes()
