"""PostgreSQL, asked as `privacy.reports.server` asks SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solera.core.errors import ConfigError, DeployError

# What SQLite says, and PostgreSQL: one transaction at a time is the server's only order.
_WORDS = {
    "BEGIN IMMEDIATE": "SELECT pg_advisory_xact_lock(9497)",
    " WITHOUT ROWID": "",
    "BLOB": "BYTEA",
    "INTEGER": "BIGINT",
    "?": "%s",
}


class Postgres:
    """A connection, which is made again after it broke."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 - in an extra of its own
        except ImportError:
            raise ConfigError("PostgreSQL needs two libraries", "pip install 'solera[server]'") from None
        self._psycopg, self._url = psycopg, url
        self._line: Any = None
        self._open: Any = None  # the transaction that is under way
        self._asked(self._connect)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """A cursor on what a statement finds."""
        if sql.startswith("PRAGMA"):
            sql = "SELECT"
        for word, here in _WORDS.items():
            sql = sql.replace(word, here)
        return self._asked(lambda: self._line.execute(sql, values))

    def __enter__(self) -> Postgres:
        if self._line.closed:
            self._asked(self._connect)
        self._open = self._line.transaction()
        self._asked(self._open.__enter__)
        return self

    def __exit__(self, *failed: Any) -> None:
        self._asked(lambda: self._open.__exit__(*failed))

    def close(self) -> None:
        """End the connection."""
        self._line.close()

    def _connect(self) -> None:
        self._line = self._psycopg.connect(self._url, autocommit=True)

    def _asked(self, what: Any) -> Any:
        try:
            return what()
        except self._psycopg.Error as error:
            said = " ".join(str(error).split())
            raise DeployError(f"the database does not answer: {said}", "check --database") from None
