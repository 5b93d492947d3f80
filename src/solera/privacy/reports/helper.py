"""The helper: it evaluates F for devices, and relays their reports in random order, without their senders.

An epoch has two parts that do not overlap:

    open      every device has one request evaluated, and sends one message
    closed    the key is deleted; only then reports go to the server

So whoever has F evaluated chooses inputs before any report can be seen, and afterwards F is lost for all.
What the helper knows is who sends, when, and how much: the same for all. It cannot read a report.

Everything is in a database, each step in one transaction. A step that is done again changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from typing import Any

from solera.privacy.reports.oprf import ELEMENT_BYTES, ReportsError, derive_key, evaluate, public_key
from solera.privacy.reports.report import SEALED_BYTES, Terms
from solera.privacy.reports.reporter import split

_TABLES = (
    "CREATE TABLE IF NOT EXISTS epochs (federation TEXT, epoch INTEGER, context BLOB NOT NULL,"
    " least_devices INTEGER NOT NULL, reports INTEGER NOT NULL, public BLOB NOT NULL, key BLOB,"
    " PRIMARY KEY (federation, epoch))",
    # Who took part, while the epoch is open: the digest of the one request, and whether the message came.
    "CREATE TABLE IF NOT EXISTS devices (federation TEXT, epoch INTEGER, device TEXT, request BLOB NOT NULL,"
    " sent INTEGER NOT NULL, PRIMARY KEY (federation, epoch, device))",
    # Reports under random numbers, by which they are kept and relayed. There is no trace of the sender.
    "CREATE TABLE IF NOT EXISTS relayed (federation TEXT, epoch INTEGER, place BLOB, sealed BLOB NOT NULL,"
    " PRIMARY KEY (federation, epoch, place)) WITHOUT ROWID",
)


class Helper:
    """One helper, for any number of federations. Names of devices come from whoever authenticates them."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute("PRAGMA secure_delete = ON")
        with database:
            for statement in _TABLES:
                database.execute(statement)

    def begin(self, terms: Terms) -> bytes:
        """Open an epoch with a key of its own. Returns the public key, also for an epoch that was opened."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            known = self._rows("SELECT context, public FROM epochs WHERE federation = ? AND epoch = ?", terms)
            if known:
                if known[0][0] != terms.context:
                    raise ReportsError(f"epoch {terms.epoch} has begun with other terms")
                return bytes(known[0][1])
            ((last,),) = self._database.execute(
                "SELECT MAX(epoch) FROM epochs WHERE federation = ?", (terms.federation,)
            )
            if last is not None and last > terms.epoch:
                raise ReportsError(f"epoch {terms.epoch} is over: the last one is {last}")
            key = derive_key(os.urandom(32), terms.context)
            public = public_key(key)
            numbers = (terms.context, terms.least_devices, terms.reports, public, key)
            self._rows("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?)", terms, *numbers)
        return public

    def unfinished(self, federation: str, before: int) -> list[Terms]:
        """Epochs before this one that have a key or reports."""
        rows = self._database.execute(
            "SELECT epoch, least_devices, reports FROM epochs AS e WHERE federation = ?1 AND epoch < ?2"
            " AND (key IS NOT NULL OR EXISTS (SELECT 1 FROM relayed AS r"
            " WHERE r.federation = e.federation AND r.epoch = e.epoch)) ORDER BY epoch",
            (federation, before),
        )
        return [Terms(federation, *row) for row in rows]

    def evaluate(self, terms: Terms, device: str, request: bytes) -> bytes:
        """The answer to a device's only request; to the same request the same again."""
        elements = split(request, ELEMENT_BYTES)
        if len(elements) != terms.reports:
            raise ReportsError(f"a request has {terms.reports} elements, not {len(elements)}")
        key = self._key(terms)
        with self._database:
            digest = hashlib.sha256(request).digest()
            self._rows("INSERT OR IGNORE INTO devices VALUES (?, ?, ?, ?, 0)", terms, device, digest)
            if self._rows(f"SELECT request {_DEVICE}", terms, device) != [(digest,)]:
                raise ReportsError("this device had another request evaluated in this epoch")
        evaluated, proof = evaluate(key, elements)
        return b"".join(evaluated) + proof

    def accept(self, terms: Terms, device: str, message: bytes) -> None:
        """Keep a device's reports, under random numbers. Of two messages the first one counts."""
        sealed = split(message, SEALED_BYTES)
        if len(sealed) != terms.reports:
            raise ReportsError(f"a message has {terms.reports} reports, not {len(sealed)}")
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._key(terms)
            sent = self._rows(f"SELECT sent {_DEVICE}", terms, device)
            if not sent:
                raise ReportsError("this device had no request evaluated in this epoch")
            if sent == [(1,)]:
                return
            self._rows(f"UPDATE devices SET sent = 1 {_WHERE} AND device = ?", terms, device)
            for each in sealed:
                self._rows("INSERT INTO relayed VALUES (?, ?, ?, ?)", terms, os.urandom(16), each)

    def close(self, terms: Terms) -> int:
        """End the epoch: delete its key and who took part. Returns how many reports there are to relay.

        With fewer devices than the threshold nothing could be opened, and nothing is relayed.
        """
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if self._rows(f"SELECT key IS NULL FROM epochs {_WHERE}", terms) == [(0,)]:
                ((devices,),) = self._rows(f"SELECT COUNT(*) FROM devices {_WHERE} AND sent", terms)
                if devices < terms.least_devices:
                    self._rows(f"DELETE FROM relayed {_WHERE}", terms)
                self._rows(f"UPDATE epochs SET key = NULL {_WHERE}", terms)
                self._rows(f"DELETE FROM devices {_WHERE}", terms)
            ((reports,),) = self._rows(f"SELECT COUNT(*) FROM relayed {_WHERE}", terms)
        return int(reports)

    def parts(self, terms: Terms, size: int = 10_000) -> Iterator[bytes]:
        """The reports of a closed epoch in random order, for the server."""
        if self._rows(f"SELECT key IS NULL FROM epochs {_WHERE}", terms) != [(1,)]:
            raise ReportsError(f"epoch {terms.epoch} is not closed")
        after = b""
        select = f"SELECT place, sealed FROM relayed {_WHERE} AND place > ? ORDER BY place LIMIT ?"
        while rows := self._rows(select, terms, after, size):
            yield b"".join(sealed for _, sealed in rows)
            after = rows[-1][0]

    def forget(self, terms: Terms) -> None:
        """Delete the reports of an epoch that the server has."""
        with self._database:
            self._rows(f"DELETE FROM relayed {_WHERE}", terms)

    def _key(self, terms: Terms) -> bytes:
        rows = self._rows(f"SELECT key FROM epochs {_WHERE} AND context = ?", terms, terms.context)
        if not rows or rows[0][0] is None:
            raise ReportsError(f"epoch {terms.epoch} is not open with these terms")
        return bytes(rows[0][0])

    def _rows(self, statement: str, terms: Terms, *values: object) -> list[tuple[Any, ...]]:
        return self._database.execute(statement, (terms.federation, terms.epoch, *values)).fetchall()


_WHERE = "WHERE federation = ? AND epoch = ?"
_DEVICE = f"FROM devices {_WHERE} AND device = ?"
