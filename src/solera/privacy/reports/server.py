"""The server: it opens what at least T devices have reported, counts it, and deletes the rest.

Counts of an epoch are added to those of earlier ones. A device reports everything once, so the sum over
epochs is of devices, too: of those that were at least T in their epoch.

Everything is in a database, each step in one transaction. A step that is done again changes nothing.
"""

from __future__ import annotations

import sqlite3
from itertools import groupby
from typing import Any, NamedTuple

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


class Server:
    """One server, with the key that reports are sealed for."""

    def __init__(self, database: sqlite3.Connection, key: X25519PrivateKey) -> None:
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
                    self._rows("INSERT OR IGNORE INTO reports VALUES (?, ?, ?, ?, ?, ?)", terms, *each)
        return wrong

    def open(self, terms: Terms) -> Epoch:
        """Open an epoch of which all parts have come, once."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            done = self._epoch(terms)
            if done:
                return done
            reports = measurements = refused = used = 0
            select = f"SELECT tag, point, share, ciphertext FROM reports {_WHERE} ORDER BY tag, point"
            rows = self._database.execute(select, (terms.federation, terms.epoch))
            for _, group in groupby((Report(*row) for row in rows), lambda each: each.tag):
                same = list(group)
                reports += len(same)
                found = opened(terms, same) if len(same) >= terms.least_devices else None
                if found:
                    measurements, refused, used = measurements + 1, refused + found.refused, used + len(same)
                    # Devices of one mind can make up a second tag for a measurement; both are counted.
                    self._rows(
                        "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                        " SET devices = devices + excluded.devices",
                        terms,
                        found.measurement.encoded(),
                        found.devices,
                    )
            epoch = Epoch(reports, measurements, refused, reports - used)
            self._rows("INSERT INTO opened VALUES (?, ?, ?, ?, ?, ?)", terms, *epoch)
            self._rows(f"DELETE FROM reports {_WHERE}", terms)
        return epoch

    def counts(self, federation: str, epoch: int | None = None) -> dict[Measurement, int]:
        """Devices by measurement, of one epoch or of all together."""
        rows = self._database.execute(
            "SELECT measurement, SUM(devices) FROM counts"
            " WHERE federation = ?1 AND (?2 IS NULL OR epoch = ?2) GROUP BY measurement",
            (federation, epoch),
        )
        return {Measurement.decoded(encoded): devices for encoded, devices in rows}

    def _epoch(self, terms: Terms) -> Epoch | None:
        rows = self._rows(f"SELECT reports, measurements, refused, unopened FROM opened {_WHERE}", terms)
        return Epoch(*rows[0]) if rows else None

    def _rows(self, statement: str, terms: Terms, *values: object) -> list[tuple[Any, ...]]:
        return self._database.execute(statement, (terms.federation, terms.epoch, *values)).fetchall()


_WHERE = "WHERE federation = ? AND epoch = ?"
