"""The device's database: SQLite, in which every step is done wholly or not at all, killed or not."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from solera.core.errors import DeviceError

VERSION = 7  # of the tables
_FEDERATED = (  # new in version 3
    # Federations that have asked; standing is 'asked', 'joined' or 'left', offer is in JSON.
    "CREATE TABLE federations (id TEXT PRIMARY KEY, standing TEXT NOT NULL, offer TEXT NOT NULL,"
    " time INTEGER NOT NULL)",
    # Every round that an upload was made or begun for; cohort is in JSON. See ledger.py.
    "CREATE TABLE rounds (id INTEGER PRIMARY KEY, context TEXT UNIQUE, federation TEXT NOT NULL,"
    " round INTEGER NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, stage INTEGER NOT NULL,"
    " cohort TEXT NOT NULL, clip REAL, noise REAL, time INTEGER NOT NULL, terms TEXT, secrets BLOB,"
    " request TEXT, reveal BLOB)",
    # What kind of message a line of the outbox is of, and to which federation.
    "ALTER TABLE outbox ADD COLUMN kind TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE outbox ADD COLUMN federation TEXT NOT NULL DEFAULT ''",
)
_OPINIONS = (  # new in version 4
    # Items that a user has seen and did not like: never recommended, and nothing is learned from them.
    "CREATE TABLE seen_only (user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
    " item TEXT NOT NULL, PRIMARY KEY (user, item))",
    # Titles of a user's exports that the user has matched with an item; key is the plain title.
    "CREATE TABLE aliases (user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
    " key TEXT NOT NULL, year INTEGER, title TEXT NOT NULL, item TEXT NOT NULL)",
    "CREATE UNIQUE INDEX alias ON aliases (user, key, COALESCE(year, 0))",
)
_CHOICES = (  # new in version 5
    # Items that a user does not want to see, and items to choose from: a watchlist or a library.
    "CREATE TABLE hidden (user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
    " item TEXT NOT NULL, PRIMARY KEY (user, item))",
    "CREATE TABLE listed (user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
    " item TEXT NOT NULL, source TEXT NOT NULL, PRIMARY KEY (user, item))",
    # Other programs that may use the service; digest is the SHA-256 of the secret, which is not kept.
    "CREATE TABLE tokens (id INTEGER PRIMARY KEY, user INTEGER NOT NULL REFERENCES users (id)"
    " ON DELETE CASCADE, name TEXT NOT NULL, scopes TEXT NOT NULL, digest TEXT NOT NULL UNIQUE,"
    " time INTEGER NOT NULL, used INTEGER)",
)
_QUESTIONS = (  # new in version 6
    # Answers to evaluations, which cost ε like everything that leaves.
    "CREATE TABLE evaluations (id INTEGER PRIMARY KEY, federation TEXT NOT NULL, users INTEGER NOT NULL,"
    " epsilon REAL NOT NULL, time INTEGER NOT NULL)",
    # Which users of this device a masked upload was made of, in JSON.
    "ALTER TABLE rounds ADD COLUMN slots TEXT NOT NULL DEFAULT '[]'",
)
_TASTE = (  # new in version 7
    # Items that a user has not met and does not like: never recommended, and those like them less.
    "CREATE TABLE disliked (user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
    " item TEXT NOT NULL, PRIMARY KEY (user, item))",
)
_STEPS = {  # from a version to the next
    2: ("DROP TABLE IF EXISTS masked_rounds", *_FEDERATED),
    3: _OPINIONS,
    4: _CHOICES,
    5: _QUESTIONS,
    6: _TASTE,
}
_TABLES = (
    "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    # An unknown time is NULL: such rows count as the oldest, in the order they came.
    "CREATE TABLE interactions (id INTEGER PRIMARY KEY,"
    " user INTEGER NOT NULL REFERENCES users (id) ON DELETE CASCADE,"
    " item TEXT NOT NULL, time INTEGER, source TEXT NOT NULL)",
    "CREATE UNIQUE INDEX once ON interactions (user, item, COALESCE(time, 'unknown'))",
    # Those who take part in a federation, under numbers that are never given twice.
    "CREATE TABLE members (slot INTEGER PRIMARY KEY AUTOINCREMENT,"
    " user INTEGER NOT NULL UNIQUE REFERENCES users (id) ON DELETE CASCADE)",
    # Parameters, as little-endian numbers: 'personal' ones of a user's own; 'pending' ones, which become
    # personal when the server has taken what was sent with them; and what a federation has 'shared', with one
    # user or (NULL) with all.
    "CREATE TABLE tensors (kind TEXT NOT NULL, user INTEGER REFERENCES users (id) ON DELETE CASCADE,"
    " name TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL, numbers BLOB NOT NULL)",
    "CREATE UNIQUE INDEX one ON tensors (kind, COALESCE(user, 0), name)",
    # Whatever has left the device; tensors and steps in JSON.
    "CREATE TABLE outbox (id INTEGER PRIMARY KEY, time INTEGER NOT NULL, round INTEGER NOT NULL,"
    " tensors TEXT NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, steps TEXT NOT NULL)",
    *_FEDERATED,
    *_OPINIONS,
    *_CHOICES,
    *_QUESTIONS,
    *_TASTE,
)


class Store:
    """An open database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _create_private(path)
        with self.errors():
            self.connection = sqlite3.connect(path, isolation_level=None, timeout=10)
            self.connection.row_factory = sqlite3.Row
            for pragma in (
                "journal_mode = WAL",
                "synchronous = FULL",
                "foreign_keys = ON",
                "secure_delete = ON",
            ):
                self.connection.execute(f"PRAGMA {pragma}")

    @classmethod
    def version_of(cls, path: Path) -> int:
        """Of the tables in a file; 0 where there are none."""
        if not path.is_file():
            return 0
        store = cls(path)
        try:
            with store.errors():
                return int(store.connection.execute("PRAGMA user_version").fetchone()[0])
        finally:
            store.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: on disk when it ends, undone when it fails. Within another, a part of that one."""
        with nullcontext() if self.connection.in_transaction else self._transaction():
            yield self.connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.errors():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What SQLite complains of, in words a person can do something with."""
        try:
            yield
        except sqlite3.Error as error:
            hints = {
                "SQLITE_FULL": "make room on the disk, then give the command again: nothing was changed",
                "SQLITE_IOERR": "check that the disk is sound and has room, then give the command again",
                "SQLITE_BUSY": "another command is writing: wait for it, then try again",
                "SQLITE_READONLY": "the folder is not yours to write: check its rights",
                "SQLITE_CANTOPEN": "check that the folder is there, and that you may write to it",
            }
            hint = next((text for start, text in hints.items() if _name(error).startswith(start)), "")
            raise DeviceError(
                f"{self.path}: {error}", hint or "restore the folder from a copy, or make a new one"
            ) from None

    def create(self, settings: dict[str, str]) -> None:
        """All tables and the first settings, in one step."""
        with self.writing() as connection:
            for statement in _TABLES:
                connection.execute(statement)
            connection.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
            connection.execute(f"PRAGMA user_version = {VERSION}")

    def migrate(self, version: int) -> None:
        """Bring the tables of an older version up to date, in one step."""
        if version < min(_STEPS):
            raise DeviceError(
                f"{self.path} was written by a version of Solera that is too old (tables {version})",
                "make a new device, and import the history again",
            )
        if version < VERSION:
            with self.writing() as connection:
                for step in range(version, VERSION):
                    for statement in _STEPS[step]:
                        connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")

    def set(self, name: str, value: str) -> None:
        """Change one setting."""
        with self.writing() as connection:
            connection.execute(
                "INSERT INTO settings VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2",
                (name, value),
            )

    def settings(self) -> dict[str, str]:
        """By name."""
        return {row["name"]: row["value"] for row in self.rows("SELECT name, value FROM settings")}

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        """What a query finds."""
        with self.errors():
            return self.connection.execute(query, values).fetchall()

    def truncate_log(self) -> bool:
        """Leave nothing of what was erased in the write-ahead log; False if another program reads it."""
        with self.errors():
            return not self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]

    def wipe(self) -> None:
        """Leave no copy of deleted rows in the files, as far as a program can see to that, or say so.

        While another program reads, SQLite keeps what that program may still need in the write-ahead log.
        """
        try:
            self.connection.execute("VACUUM")
            busy = bool(self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        except sqlite3.Error as error:
            busy = _name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy:
                raise DeviceError(
                    f"the rows are deleted, but copies of them may remain in {self.path}: {error}",
                    "check the disk and its free space, then run the same command again",
                ) from None
        log = self.path.with_name(f"{self.path.name}-wal")
        if busy or (log.exists() and log.stat().st_size):
            raise DeviceError(
                f"the rows are deleted, but copies of them remain in the write-ahead log {log},"
                " because another program uses the database",
                "stop that program, then run the same command again",
            )

    def close(self) -> None:
        """Give the files back."""
        self.connection.close()


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or ""


def _create_private(path: Path) -> None:
    """For its owner alone, whatever the umask; SQLite gives its other files the same rights."""
    with suppress(OSError):  # it is there already, or SQLite says what is wrong
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
