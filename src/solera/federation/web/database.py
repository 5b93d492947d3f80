"""One database, PostgreSQL or SQLite, by the same SQL: as a worker asks it, and as the coordinator does.

Statements name their values $1, $2, … A worker waits for many answers at once: asyncpg, or a thread for
SQLite. The coordinator and the operator's commands wait for one: psycopg, or SQLite itself. Each loads the
library that it asks with.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from solera.core.errors import ConfigError, DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.core.frozen import Frozen
from solera.federation.common.address import Address, home_of
from solera.federation.common.private_files import private_folder

Rows = Sequence[Sequence[Any]]
SQLITE, POSTGRES = "sqlite:///", "postgresql://"
_BUSY = 60.0  # seconds for which SQLite waits for another writer
_CONNECTIONS = 8  # of a worker, to PostgreSQL


class Place(Frozen):
    """What every command on a federation needs to know of its server; private, as it may have a password."""

    address: str
    ca: Path | None = None
    database: str  # postgresql://…, or sqlite:///FILE

    @classmethod
    def read(cls, folder: Path) -> Place:
        """As `solera server start` noted it."""
        try:
            return cls.model_validate_json((home_of(folder) / "server.json").read_bytes())
        except (OSError, ValidationError):
            raise DeployError(
                f"no server has been started for {folder}", f"solera server start {folder} --keys DIR"
            ) from None

    def write(self, folder: Path) -> None:
        """For every later command on this federation."""
        write_atomically(
            private_folder(home_of(folder)) / "server.json", self.model_dump_json(indent=2) + "\n", PRIVATE
        )

    @property
    def server(self) -> Address:
        """The server, as this machine reaches it."""
        return Address.parse(self.address, self.ca)


def upgrade(url: str) -> None:
    """Bring a database to the newest schema: see migrations."""
    try:
        from alembic import command  # noqa: PLC0415 - workers need none of it
        from alembic.config import Config  # noqa: PLC0415
        from sqlalchemy import create_engine  # noqa: PLC0415
        from sqlalchemy.exc import DBAPIError  # noqa: PLC0415
    except ImportError:
        raise ConfigError("a federation's server needs alembic", "pip install 'solera[server]'") from None
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    engine = create_engine(url.replace(POSTGRES, "postgresql+psycopg://", 1))
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except DBAPIError as error:
        said = " ".join(str(error.orig).split())
        raise DeployError(f"the database cannot be used: {said}", "check --database") from None
    finally:
        engine.dispose()


class Connection(Protocol):
    """A database that is waited for."""

    def rows(self, sql: str, *values: Any) -> Rows:
        """What a statement finds or changes."""

    def many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        """The same statement with many rows of values, in one transaction."""

    def close(self) -> None:
        """End the connection."""


class Asked(Protocol):
    """A database that answers many at once."""

    async def rows(self, sql: str, *values: Any) -> Rows:
        """What a statement finds or changes."""

    async def close(self) -> None:
        """End all connections."""


def connect(url: str) -> Connection:
    """Connect to a database with the newest schema."""
    if url.startswith(SQLITE):
        return _Sqlite(Path(url.removeprefix(SQLITE)))
    return _Postgres(url)


async def ask(url: str) -> Asked:
    """The same for a worker."""
    if url.startswith(SQLITE):
        return _Threaded(_Sqlite(Path(url.removeprefix(SQLITE))))
    return await _Pool.open(url)


class _Sqlite:
    """A file. What an answered request has written outlives the process, not a power cut."""

    def __init__(self, path: Path) -> None:
        try:
            self._line = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
            self._line.execute("PRAGMA journal_mode = WAL")
            self._line.execute("PRAGMA synchronous = NORMAL")
            self._line.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            raise DeployError(f"{path} cannot be opened: {error}", "check the disk") from None

    def rows(self, sql: str, *values: Any) -> Rows:
        return self._line.execute(sql, _named(values)).fetchall()

    def many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        with self._alone():
            self._line.executemany(sql, map(_named, values))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._line.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._line.execute("COMMIT")
        except BaseException:
            self._line.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._line.close()


def _named(values: Sequence[Any]) -> dict[str, Any]:
    return {str(place): value for place, value in enumerate(values, start=1)}


class _Threaded:
    """A file, asked by one thread."""

    def __init__(self, file: _Sqlite) -> None:
        self._file, self._thread = file, ThreadPoolExecutor(1)

    async def rows(self, sql: str, *values: Any) -> Rows:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: self._file.rows(sql, *values))

    async def close(self) -> None:
        self._thread.shutdown()
        self._file.close()


class _Postgres:
    """A server, through psycopg. A connection that broke is made again by the next question."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 - where it is asked
        except ImportError:
            raise _missing() from None
        self._psycopg, self._url = psycopg, url
        self._line = self._connected()

    def _connected(self) -> Any:
        psycopg = self._psycopg
        try:
            return psycopg.connect(self._url, autocommit=True, cursor_factory=psycopg.RawCursor)
        except psycopg.Error as error:
            said = " ".join(str(error).split())
            raise DeployError(f"the database does not answer: {said}", "check --database") from None

    def rows(self, sql: str, *values: Any) -> Rows:
        with self._asking():
            found = self._line.execute(sql, values)
            return found.fetchall() if found.description else []

    def many(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        with self._asking(), self._line.transaction(), self._line.cursor() as cursor:
            cursor.executemany(sql, values)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        if self._line.closed:
            self._line = self._connected()
        try:
            yield
        except self._psycopg.OperationalError as error:
            self._line.close()
            raise DeployError(f"the database does not answer: {error}", "it is asked again") from None

    def close(self) -> None:
        self._line.close()


class _Pool:
    """A server, through asyncpg."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, url: str) -> _Pool:
        try:
            import asyncpg  # noqa: PLC0415 - where it is asked
        except ImportError:
            raise _missing() from None
        sizes = {"min_size": 1, "max_size": _CONNECTIONS}
        return cls(await asyncpg.create_pool(url, **sizes, command_timeout=30, reset=_as_it_was))

    async def rows(self, sql: str, *values: Any) -> Rows:
        return list(await self._pool.fetch(sql, *values))

    async def close(self) -> None:
        await self._pool.close()


async def _as_it_was(_: Any) -> None:
    """A connection has nothing to reset after single statements, and a reset is a statement more."""


def _missing() -> ConfigError:
    return ConfigError("PostgreSQL needs two libraries", "pip install 'solera[server]'")
