"""Keys of the two operators, their databases, and their services as processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from starlette.applications import Starlette

from solera.core.errors import ConfigError, DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.federation.common.address import Address
from solera.federation.common.private_files import private_files, private_folder
from solera.federation.node.line import read_key
from solera.federation.reports.service import Known, Plan, Upstream, helper_app, server_app
from solera.privacy.identity import new_identity
from solera.privacy.reports.server import Database

HELPER, SERVER = "helper", "server.reports"
# What SQLite says, and PostgreSQL: one transaction at a time is the server's only order.
_WORDS = {
    "BEGIN IMMEDIATE": "SELECT pg_advisory_xact_lock(9497)",
    " WITHOUT ROWID": "",
    "BLOB": "BYTEA",
    "INTEGER": "BIGINT",
    "?": "%s",
}


class Postgres:
    """PostgreSQL, asked as `privacy.reports.server` asks SQLite; a connection that broke is made again."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 - where it is asked
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


def helper_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    """The key with which a helper speaks to the server, made where there is none."""
    return identity(private_folder(folder) / HELPER, "helper")


def identity(path: Path, name: str) -> ec.EllipticCurvePrivateKey:
    """The key in a file, made with its public half beside it where there is none."""
    if not path.exists():
        made = new_identity()
        public = made.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        write_atomically(path.with_name(f"{path.name}.pub"), public + f" {name}\n".encode())
        secret = made.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        write_atomically(path, secret, PRIVATE)
    return read_key(path)


def server_key(folder: Path) -> X25519PrivateKey:
    """The key that reports are sealed for, made where there is none."""
    path = private_folder(folder) / SERVER
    if not path.exists():
        write_atomically(path, X25519PrivateKey.generate().private_bytes_raw(), PRIVATE)
    return X25519PrivateKey.from_private_bytes(path.read_bytes())


def read_public(text: str) -> bytes:
    """The server's public key, as its command prints it."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 32:
        raise DeployError(
            f"{text!r} is not a server's public key",
            "`solera helper serve FOLDER` prints 64 hexadecimal digits",
        )
    return found


def keys_in(folder: Path) -> Path:
    """A folder of public keys, which has to be there."""
    if not folder.is_dir():
        raise DeployError(f"{folder} is not a folder", "make it, and put public keys into it, NAME.pub")
    return folder


def run_helper(folder: Path, plan: Plan, devices: Path, server: Upstream, address: Address) -> None:
    """The helper, until it is ended."""
    _run(helper_app(plan, folder / "helper.sqlite", Known(devices), server), address)


def run_server(folder: Path, plan: Plan, helper: Path, address: Address, database: str | None) -> None:
    """The server, until it is ended."""
    opened = partial(server_database, folder, database)
    _run(server_app(plan, opened, server_key(folder), Known(helper)), address)


def server_database(folder: Path, url: str | None) -> Database:
    """A server's database: PostgreSQL, or without a URL a file in its folder."""
    if url is not None and not url.startswith("postgresql://"):
        raise DeployError(f"{url!r} is not a database of PostgreSQL", "give postgresql://USER@HOST/NAME")
    return sqlite3.connect(folder / "reports.sqlite", timeout=10) if url is None else Postgres(url)


def _run(app: Starlette, address: Address) -> None:
    with private_files():
        uvicorn.run(app, host=address.host, port=address.port, log_level="warning", server_header=False)
