"""The server: it opens what at least T devices have reported, counts it, and deletes the rest.

Counts of an epoch are added to those of earlier ones. A device reports everything once, so the sum over
epochs is of devices, too: of those that were at least T in their epoch.

Everything is in a database, each step in one transaction. A step that is done again changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from solera.privacy.reports.measurements import Measurement
from solera.privacy.reports.oprf import ReportsError
from solera.privacy.reports.report import SEALED_BYTES, Report, Terms, opened, unseal
from solera.privacy.reports.reporter import split

_TABLES = (
    "CREATE TABLE IF NOT EXISTS reports (federation TEXT, epoch INTEGER, tag BLOB, point BLOB, share BLOB,"
    " ciphertext BLOB, PRIMARY KEY (federation, epoch, tag, point)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS counts (federation TEXT, epoch INTEGER, measurement BLOB,"
    " devices INTEGER NOT NULL, PRIMARY KEY (federation, epoch, measurement)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS opened (federation TEXT, epoch INTEGER, reports INTEGER NOT NULL,"
    " measurements INTEGER NOT NULL, refused INTEGER NOT NULL, unopened INTEGER NOT NULL,"
    " PRIMARY KEY (federation, epoch))",
)


class Epoch(NamedTuple):
    """What has become of the reports of an epoch."""

    reports: int
    measurements: int  # that were opened
    refused: int  # reports that were not as they must be, among those of opened measurements
    unopened: int  # reports of what fewer than T devices have, and padding


class Database(Protocol):
    """What is used of a connection of `sqlite3`: a block of `with` is one transaction."""

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Any:
        """A cursor on what a statement finds."""

    def close(self) -> None:
        """End the connection."""

    def __enter__(self) -> object: ...

    def __exit__(self, *failed: Any) -> object: ...


class Server:
    """One server, with the key that reports are sealed for."""

    def __init__(self, database: Database, key: X25519PrivateKey) -> None:
        self._database, self._key = database, key
        database.execute("PRAGMA secure_delete = ON")
        with database:
            for statement in _TABLES:
                database.execute(statement)

    @property
    def public(self) -> bytes:
        """The public key, which devices have to know."""
        return self._key.public_key().public_bytes_raw()

    def receive(self, terms: Terms, part: bytes) -> int:
        """Keep a part of an epoch's reports. Returns how many were not sealed as they must be.

        A report that comes again is there already. After the epoch was opened nothing is taken.
        """
        wrong = 0
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if self._epoch(terms):
                return 0
            for sealed in split(part, SEALED_BYTES):
                try:
                    each = unseal(terms, sealed, self._key)
                except ReportsError:
                    wrong += 1
                else:
                    self._rows(_KEEP, terms, *each)
        return wrong

    def open(self, terms: Terms) -> Epoch:
        """Open an epoch of which all parts have come, once."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            done = self._epoch(terms)
            if done:
                return done
            ((reports,),) = self._rows(f"SELECT COUNT(*) FROM reports {_WHERE}", terms)
            measurements = refused = used = 0
            for (tag,) in self._rows(_ENOUGH, terms, terms.least_devices):
                same = [Report(*row) for row in self._rows(_OF_TAG, terms, tag)]
                found = opened(terms, same)
                if found:
                    measurements, refused, used = measurements + 1, refused + found.refused, used + len(same)
                    self._rows(_COUNT, terms, found.measurement.encoded(), found.devices)
            epoch = Epoch(reports, measurements, refused, reports - used)
            self._rows("INSERT INTO opened VALUES (?, ?, ?, ?, ?, ?)", terms, *epoch)
            self._rows(f"DELETE FROM reports {_WHERE}", terms)
        return epoch

    def counts(self, federation: str, epoch: int | None = None) -> dict[Measurement, int]:
        """Devices by measurement, of one epoch or of all together."""
        rows = self._database.execute(
            "SELECT measurement, SUM(devices) FROM counts"
            f" WHERE federation = ?{'' if epoch is None else ' AND epoch = ?'} GROUP BY measurement",
            (federation,) if epoch is None else (federation, epoch),
        )
        return {Measurement.decoded(encoded): int(devices) for encoded, devices in rows}

    def _epoch(self, terms: Terms) -> Epoch | None:
        rows = self._rows(f"SELECT reports, measurements, refused, unopened FROM opened {_WHERE}", terms)
        return Epoch(*rows[0]) if rows else None

    def _rows(self, statement: str, terms: Terms, *values: object) -> list[tuple[Any, ...]]:
        cursor = self._database.execute(statement, (terms.federation, terms.epoch, *values))
        return list(cursor.fetchall()) if cursor.description else []


_WHERE = "WHERE federation = ? AND epoch = ?"
_KEEP = "INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_ENOUGH = f"SELECT tag FROM reports {_WHERE} GROUP BY tag HAVING COUNT(*) >= ? ORDER BY tag"
_OF_TAG = f"SELECT tag, point, share, ciphertext FROM reports {_WHERE} AND tag = ? ORDER BY point"
# Devices of one mind can make up a second tag for a measurement; both are counted.
_COUNT = (
    "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT (federation, epoch, measurement)"
    " DO UPDATE SET devices = counts.devices + excluded.devices"
)
