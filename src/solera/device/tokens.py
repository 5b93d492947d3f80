"""Tokens by which other programs use a device's service, each with scopes. Only their digests are kept."""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Collection
from typing import NamedTuple

from solera.core.errors import DeviceError
from solera.core.text import clean_text
from solera.device.history import user_id
from solera.device.store import Store

READ, ADD, PAGE = SCOPES = ("read", "add", "page")
_START = "solera_"  # so that scanners of secrets find one that was published by mistake
_NAME = 100  # characters
_FRESH = 60  # seconds in which a use is not noted again


class Token(NamedTuple):
    """A token without its secret; times are in seconds since 1970."""

    number: int
    name: str
    user: str
    scopes: tuple[str, ...]
    created: int
    used: int | None


class Tokens:
    """The tokens of a device."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, name: str, scopes: Collection[str], user: str) -> str:
        """Create a token for one user's data, and return its secret, which is not stored."""
        wrong = [scope for scope in scopes if scope not in SCOPES]
        if wrong or not scopes:
            said = f"unknown scope {wrong[0]!r}" if wrong else "a token needs a scope"
            raise DeviceError(said, f"scopes: {', '.join(SCOPES)}")
        if not name or clean_text(name) != name or len(name) > _NAME:
            raise DeviceError(
                f"{clean_text(name)[:20]!r} is not a valid name", "name the program, in one line"
            )
        secret = _START + secrets.token_urlsafe(32)
        held = [scope for scope in SCOPES if scope in scopes]
        with self._store.writing() as connection:
            connection.execute(
                "INSERT INTO tokens (user, name, scopes, digest, time) VALUES (?, ?, ?, ?, ?)",
                (user_id(connection, user), name, json.dumps(held), digest(secret), int(time.time())),
            )
        return secret

    def listed(self) -> list[Token]:
        """All tokens, oldest first."""
        rows = self._store.rows(f"{_SELECT} ORDER BY tokens.id")
        return [_token(row) for row in rows]

    def revoke(self, number: int) -> Token:
        """Delete a token. Whoever has it is refused from then on."""
        found = next((each for each in self.listed() if each.number == number), None)
        if found is None:
            raise DeviceError(f"there is no token {number}", "solera device token DIR shows the numbers")
        with self._store.writing() as connection:
            connection.execute("DELETE FROM tokens WHERE id = ?", (number,))
        return found

    def find(self, secret: str) -> Token | None:
        """The token of a secret, and note that it was used."""
        rows = self._store.rows(f"{_SELECT} WHERE digest = ?", digest(secret))
        if not rows:
            return None
        found, now = _token(rows[0]), int(time.time())
        if found.used is None or now - found.used >= _FRESH:
            with self._store.writing() as connection:
                connection.execute("UPDATE tokens SET used = ? WHERE id = ?", (now, found.number))
        return found


_SELECT = (
    "SELECT tokens.id, tokens.name, users.name AS user, scopes, time, used"
    " FROM tokens JOIN users ON users.id = tokens.user"
)


def digest(secret: str) -> str:
    """What is kept of a secret. A secret is random, so its digest needs neither salt nor many rounds."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(row: sqlite3.Row) -> Token:
    number, name, user, scopes, created, used = row
    return Token(number, name, user, tuple(json.loads(scopes)), created, used)
