"""Strict reading and writing of bytes. Malformed input is refused before memory is allocated."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from solera.privacy.secagg.encoding import MAX_CLIENTS
from solera.privacy.secagg.errors import SecAggError

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


def number(value: int) -> bytes:
    """Two bytes."""
    return value.to_bytes(2)


def text(value: bytes) -> bytes:
    """The length, then the bytes."""
    return number(len(value)) + value


def numbers(values: Iterable[int]) -> bytes:
    """Clients, in ascending order."""
    ordered = sorted(values)
    return b"".join(map(number, (len(ordered), *ordered)))


def entries(values: Entries) -> bytes:
    """One for each of some clients, in ascending order."""
    return number(len(values)) + b"".join(number(client) + text(value) for client, value in values)


def _ascending(clients: list[int]) -> tuple[int, ...]:
    if any(a >= b for a, b in pairwise(clients)):
        raise SecAggError("clients are not in ascending order")
    return tuple(clients)
