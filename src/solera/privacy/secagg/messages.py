"""The messages of all stages, and their byte format.

Each begins with four letters, a byte for its kind and the digest of the setup, and is at most as long as its
kind allows. One of another kind, round or session is refused before anything else of it is read. Malformed
input is refused before memory is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self

from solera.privacy.identity import MAX_SIGNATURE_BYTES, SecAggError
from solera.privacy.secagg.setup import MAX_CLIENTS, MAX_VALUES

Entries = tuple[tuple[int, bytes], ...]  # of clients, in ascending order

MAX_ENTRY_BYTES = 512


class Reader:
    """Reads bytes from the front."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._rest = memoryview(data)

    def take(self, count: int) -> bytes:
        """Read exactly this many bytes."""
        if count > len(self._rest):
            raise SecAggError("a message ends too early")
        taken, self._rest = self._rest[:count], self._rest[count:]
        return bytes(taken)

    def number(self) -> int:
        """Of two bytes."""
        return int.from_bytes(self.take(2))

    def text(self) -> bytes:
        """As long as the number before it says."""
        length = self.number()
        if length > MAX_ENTRY_BYTES:
            raise SecAggError("an entry is too long")
        return self.take(length)

    def numbers(self) -> tuple[int, ...]:
        """Clients, in ascending order."""
        return _ascending([self.number() for _ in range(self._count())])

    def entries(self) -> Entries:
        """One for each of some clients, in ascending order."""
        found = [(self.number(), self.text()) for _ in range(self._count())]
        _ascending([client for client, _ in found])
        return tuple(found)

    def rest(self) -> memoryview:
        """The remaining bytes."""
        taken, self._rest = self._rest, self._rest[:0]
        return taken

    def end(self) -> None:
        """Check that no bytes are left."""
        if len(self._rest):
            raise SecAggError("a message is longer than it should be")

    def _count(self) -> int:
        count = self.number()
        if count > MAX_CLIENTS:
            raise SecAggError("a message names too many clients")
        return count


def packed_number(value: int) -> bytes:
    """Two bytes."""
    return value.to_bytes(2)


def packed_text(value: bytes) -> bytes:
    """The length, then the bytes."""
    return packed_number(len(value)) + value


def packed_numbers(values: Iterable[int]) -> bytes:
    """Clients, in ascending order."""
    ordered = sorted(values)
    return b"".join(map(packed_number, (len(ordered), *ordered)))


def packed_entries(values: Entries) -> bytes:
    """One for each of some clients, in ascending order."""
    return packed_number(len(values)) + b"".join(
        packed_number(client) + packed_text(value) for client, value in values
    )


def _ascending(clients: list[int]) -> tuple[int, ...]:
    if any(a >= b for a, b in pairwise(clients)):
        raise SecAggError("clients are not in ascending order")
    return tuple(clients)


_LETTERS = b"SAG1"
_HEAD = len(_LETTERS) + 1 + 32
_LIST = 64 + MAX_CLIENTS * (4 + MAX_ENTRY_BYTES)  # bytes of the longest list of entries


@dataclass(frozen=True)
class Message:
    """Base class of all messages."""

    KIND: ClassVar[int]
    LIMIT: ClassVar[int]  # bytes

    context: bytes

    def to_bytes(self) -> bytes:
        """Serialize the message."""
        return b"".join((_LETTERS, bytes([self.KIND]), self.context, *self._body()))

    @classmethod
    def from_bytes(cls, data: bytes, context: bytes) -> Self:
        """Parse a message of this setup; any other is refused."""
        if len(data) > cls.LIMIT:
            raise SecAggError(f"a message of {len(data)} bytes is too long")
        reader = Reader(data)
        if reader.take(5) != _LETTERS + bytes([cls.KIND]):
            raise SecAggError(f"this is not a valid {cls.__name__}")
        if reader.take(32) != context:
            raise SecAggError("a message belongs to another session, round or setup")
        message = cls._read(context, reader)
        reader.end()
        return message

    def _body(self) -> tuple[bytes | memoryview, ...]:
        raise NotImplementedError

    @classmethod
    def _read(cls, context: bytes, reader: Reader) -> Self:
        raise NotImplementedError


@dataclass(frozen=True)
class Advertisement(Message):
    """A client's two public keys and the commitment to its seed, signed with its identity."""

    KIND = 0
    LIMIT = _HEAD + 2 + 3 * 32 + 2 + MAX_SIGNATURE_BYTES

    client: int
    box_key: bytes
    mask_key: bytes
    commitment: bytes
    signature: bytes

    def _body(self) -> tuple[bytes, ...]:
        keys = (self.box_key, self.mask_key, self.commitment)
        return (packed_number(self.client), *keys, packed_text(self.signature))

    @classmethod
    def _read(cls, context: bytes, reader: Reader) -> Self:
        keys = (reader.number(), reader.take(32), reader.take(32), reader.take(32))
        return cls(context, *keys, signature=reader.text())


@dataclass(frozen=True)
class _List(Message):
    LIMIT = _HEAD + _LIST

    entries: Entries

    def _body(self) -> tuple[bytes, ...]:
        return (packed_entries(self.entries),)

    @classmethod
    def _read(cls, context: bytes, reader: Reader) -> Self:
        return cls(context, reader.entries())


class Keys(_List):
    """To every client: all advertisements as they came."""

    KIND = 1


@dataclass(frozen=True)
class _Boxes(_List):
    client: int

    def _body(self) -> tuple[bytes, ...]:
        return (packed_entries(self.entries), packed_number(self.client))

    @classmethod
    def _read(cls, context: bytes, reader: Reader) -> Self:
        return cls(context, reader.entries(), reader.number())


@dataclass(frozen=True)
class SealedShares(_Boxes):
    """From a client: a box with shares for every other one, and by what all shares can be checked: see `vss`.

    `hashes` are of the shares of every client, itself among them; `check` are the coefficients of h.
    """

    KIND = 2
    LIMIT = _HEAD + 3 * _LIST

    hashes: Entries
    check: Entries

    def _body(self) -> tuple[bytes, ...]:
        return (*super()._body(), packed_entries(self.hashes), packed_entries(self.check))

    @classmethod
    def _read(cls, context: bytes, reader: Reader) -> Self:
        return cls(context, reader.entries(), reader.number(), reader.entries(), reader.entries())


class Inbox(_Boxes):
    """To a client: the boxes that others have sealed for it, each with what it can be checked by."""

    KIND = 3


@dataclass(frozen=True)
class MaskedInput(Message):
    """From a client: its values under all masks, and whose shares it could not use."""

    KIND = 4
    LIMIT = _HEAD + 4 + 2 * MAX_CLIENTS + 8 * MAX_VALUES

    client: int
    unusable: tuple[int, ...]
    vector: bytes | memoryview

    def _body(self) -> tuple[bytes | memoryview, ...]:
        return (packed_number(self.client), packed_numbers(self.unusable), self.vector)

    @classmethod
    def _read(cls, context: bytes, reader: Reader) -> Self:
        return cls(context, reader.number(), reader.numbers(), reader.rest())


def split_vector(data: bytes) -> tuple[bytes, memoryview]:
    """A masked input without its vector, and the vector: others may add it up without knowing the rest."""
    found = MaskedInput.from_bytes(data, data[5:_HEAD])
    assert isinstance(found.vector, memoryview)
    return replace(found, vector=b"").to_bytes(), found.vector


@dataclass(frozen=True)
class Survivors(Message):
    """To every client: whose masked inputs have come."""

    KIND = 5
    LIMIT = _HEAD + 2 + 2 * MAX_CLIENTS

    clients: tuple[int, ...]

    def _body(self) -> tuple[bytes, ...]:
        return (packed_numbers(self.clients),)

    @classmethod
    def _read(cls, context: bytes, reader: Reader) -> Self:
        return cls(context, reader.numbers())


@dataclass(frozen=True)
class Confirmation(Message):
    """From a client: its signature of what it has been told so far."""

    KIND = 6
    LIMIT = _HEAD + 4 + MAX_SIGNATURE_BYTES

    client: int
    signature: bytes

    def _body(self) -> tuple[bytes, ...]:
        return (packed_number(self.client), packed_text(self.signature))

    @classmethod
    def _read(cls, context: bytes, reader: Reader) -> Self:
        return cls(context, reader.number(), reader.text())


class Confirmations(_List):
    """To every client: the others' signatures."""

    KIND = 7


@dataclass(frozen=True)
class Reveal(Message):
    """From a client: its shares of the survivors' seeds and of the mask keys of those that dropped out."""

    KIND = 8
    LIMIT = _HEAD + _LIST

    client: int
    seeds: Entries
    mask_keys: Entries

    def _body(self) -> tuple[bytes, ...]:
        return (packed_number(self.client), packed_entries(self.seeds), packed_entries(self.mask_keys))

    @classmethod
    def _read(cls, context: bytes, reader: Reader) -> Self:
        reveal = cls(context, reader.number(), reader.entries(), reader.entries())
        if {peer for peer, _ in reveal.seeds} & {peer for peer, _ in reveal.mask_keys}:
            raise SecAggError("the message has shares of both secrets of one client")
        return reveal
