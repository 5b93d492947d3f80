"""What a device reports: items and pairs of items of its history, each of them once.

The items i_0 … i_{L−1} of a history are in the order in which they were met, each at its first place:

    item i               that the device has it
    pair i, j            that it has both, at most `newest` − 1 places apart
    pair i before j      the same with their order and, in steps that double, how far apart they are

A new item therefore makes pairs with the newest ones before it. The newest pairs go first: all of the two
newest items, then all of the three newest, and so on. What a night has no room for goes on the next one.

The ledger knows what has gone. A pair goes once, whatever becomes of its order or distance later on, so that
two nights have nothing in common, and the sum of all nights is what one night of the whole history would have
been. It cannot be taken back: nobody knows which part of the sum came from whom. An item that is deleted from
the history is deleted from the ledger too, except for digests under a key of the device, by which the same
pair is known again and not sent twice.

SQLite and Python's own library are all that this module needs.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

ITEM, PAIR, ORDERED, PADDING = range(4)  # kinds
MEASUREMENT_BYTES = 10


class Measurement(NamedTuple):
    """An item, or a pair of items. Items have their numbers in the catalogue."""

    kind: int
    first: int
    second: int
    lag: int = 0  # of an ordered pair: ⌈log₂ places apart⌉

    def encoded(self) -> bytes:
        """Ten bytes."""
        return self.kind.to_bytes(1) + self.first.to_bytes(4) + self.second.to_bytes(4) + self.lag.to_bytes(1)

    @classmethod
    def decoded(cls, data: bytes) -> Measurement:
        """The measurement of ten bytes. Raises `ValueError` if there is none of these."""
        if len(data) != MEASUREMENT_BYTES:
            raise ValueError("a measurement has ten bytes")
        found = cls(data[0], int.from_bytes(data[1:5]), int.from_bytes(data[5:9]), data[9])
        valid = {
            ITEM: found.first == found.second and not found.lag,
            PAIR: found.first < found.second and not found.lag,
            ORDERED: found.first != found.second,
        }
        if not valid.get(found.kind):
            raise ValueError("a measurement of no known kind")
        return found

    @property
    def identity(self) -> bytes:
        """What goes once: the item or the pair, in whichever order."""
        low, high = sorted((self.first, self.second))
        return Measurement(PAIR, low, high).encoded()


def measurements(history: Iterable[int], newest: int, *, ordered: bool = False) -> Iterator[Measurement]:
    """All items and pairs of a history, oldest item first in it, in the order in which they are reported."""
    items = list(dict.fromkeys(history))
    for place in reversed(range(len(items))):
        item = items[place]
        yield Measurement(ITEM, item, item)
        for other in range(place + 1, min(place + newest, len(items))):
            if ordered:
                yield Measurement(ORDERED, item, items[other], (other - place - 1).bit_length())
            else:
                yield Measurement(PAIR, *sorted((item, items[other])))


class Ledger:
    """What has gone from a device to one federation, in a database that belongs to the device.

    A night's measurements are `taken` before anything of them leaves, and have `gone` before the message is
    handed over. A night of which no message was handed over is dropped, and its measurements go later.
    """

    def __init__(self, database: sqlite3.Connection, federation: str) -> None:
        self._database, self._federation = database, federation
        with database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS reported (federation TEXT, digest BLOB, epoch INTEGER NOT NULL,"
                " gone INTEGER NOT NULL, measurement BLOB, PRIMARY KEY (federation, digest)) WITHOUT ROWID"
            )
            database.execute("CREATE TABLE IF NOT EXISTS reporter (federation TEXT PRIMARY KEY, key BLOB)")
            database.execute("INSERT OR IGNORE INTO reporter VALUES (?, ?)", (federation, os.urandom(32)))
        ((self.key,),) = self._rows("SELECT key FROM reporter WHERE federation = ?")

    def take(self, epoch: int, candidates: Iterable[Measurement], limit: int) -> list[Measurement]:
        """The first candidates that were never taken, at most `limit`. A night is taken once."""
        with self._database:
            self._rows("DELETE FROM reported WHERE federation = ? AND epoch < ? AND NOT gone", epoch)
            taken = len(self.of(epoch))
            for each in () if taken else candidates:
                if taken == limit:
                    break
                row = (self._federation, self._digest(each), epoch, each.encoded())
                entered = self._database.execute(
                    "INSERT OR IGNORE INTO reported VALUES (?, ?, ?, 0, ?)", row
                ).rowcount
                taken += entered
        return self.of(epoch)

    def of(self, epoch: int) -> list[Measurement]:
        """What was taken for a night, without what was forgotten since."""
        rows = self._rows(
            "SELECT measurement FROM reported WHERE federation = ? AND epoch = ?"
            " AND measurement IS NOT NULL ORDER BY digest",
            epoch,
        )
        return [Measurement.decoded(row[0]) for row in rows]

    def went(self, epoch: int) -> None:
        """Record that a night's message is about to be handed over: all of it counts as sent from here on."""
        with self._database:
            self._rows("UPDATE reported SET gone = 1 WHERE federation = ? AND epoch = ?", epoch)

    def gone(self) -> list[tuple[int, Measurement | None]]:
        """Nights and all that has gone; None where an item was deleted since."""
        rows = self._rows(
            "SELECT epoch, measurement FROM reported WHERE federation = ? AND gone ORDER BY epoch"
        )
        return [(row[0], Measurement.decoded(row[1]) if row[1] else None) for row in rows]

    def forget(self, item: int) -> None:
        """Delete an item that is no longer in the history. What has gone of it stays in the sums."""
        with self._database:
            for digest, gone, encoded in self._rows(
                "SELECT digest, gone, measurement FROM reported WHERE federation = ?"
                " AND measurement IS NOT NULL"
            ):
                if item in Measurement.decoded(encoded)[1:3]:
                    change = "UPDATE reported SET measurement = NULL" if gone else "DELETE FROM reported"
                    self._rows(f"{change} WHERE federation = ? AND digest = ?", digest)

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._database.execute(statement, (self._federation, *values)).fetchall()

    def _digest(self, measurement: Measurement) -> bytes:
        return hmac.digest(self.key, measurement.identity, hashlib.sha256)[:16]


def counted(reports: Iterable[Sequence[Measurement]]) -> dict[Measurement, int]:
    """How many devices report each measurement."""
    found: dict[Measurement, int] = {}
    for report in reports:
        for each in set(report):
            found[each] = found.get(each, 0) + 1
    return found
