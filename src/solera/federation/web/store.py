"""What the database is asked: devices, tasks and answers; and the files that many devices are sent.

An answer counts once: it belongs to one task, and a task has one answer. Whether a device may give it is
asked in the statement that writes it. Tasks and answers carry the number of the coordinator that made them,
its fence: one that was replaced, and lives on without knowing, can neither send nor collect.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from solera.core.errors import RunError
from solera.core.files import write_atomically
from solera.federation.common.address import home_of
from solera.federation.common.private_files import private_folder
from solera.federation.web.database import Asked, Connection
from solera.federation.web.signing import Signed, device_number

NAME = re.compile("[0-9a-f]{64}")
_KEPT = 3600.0  # seconds that a file stays after nothing names it any more
HERE = 60.0  # seconds since its last check-in for which a device counts as online


class Nodes(NamedTuple):
    """Numbers of registered devices and of devices online."""

    registered: int
    online: int


class Task(NamedTuple):
    """Something for a device to answer."""

    id: str
    kind: str
    round: str
    body: bytes
    blob: str


class Message(NamedTuple):
    """A task before it is sent."""

    device: int
    kind: str
    round: str
    body: bytes
    blob: str


class Came(NamedTuple):
    """An answer."""

    task: str
    device: int
    body: bytes


@dataclass(eq=False)  # not frozen: what passes a block on its way sets its traceback
class No(Exception):  # noqa: N818 - an answer to a device, not a failure
    """Why a request is refused."""

    status: int
    error: str
    next: str
    nonce: int | None = None


class Desk:
    """What workers ask for devices."""

    def __init__(self, database: Asked, *, is_open: bool, now: Callable[[], float] = time.time) -> None:
        """Where nothing is encrypted, whoever calls is let in."""
        self._database, self._is_open, self._now = database, is_open, now

    async def newest(self) -> int:
        """A number that grows whenever tasks are sent."""
        found = await self._database.rows("SELECT coalesce(max(number), 0) FROM tasks")
        return int(found[0][0])

    async def check_in(self, signed: Signed, session: str, *, leaving: bool) -> bool:
        """Note that a device is there, or leaves; returns whether a task may wait for it."""
        number, now = signed.number, self._now()
        for _ in range(2):
            if found := await self._database.rows(
                "UPDATE devices SET nonce = $2, seen = $3, session = $4 WHERE number = $1 AND revoked = 0"
                " AND nonce < $2 AND (session = $5 OR session = '' OR seen < $6)"
                " RETURNING EXISTS (SELECT 1 FROM tasks WHERE device = $1)",
                number,
                signed.nonce,
                0.0 if leaving else now,
                "" if leaving else session,
                session,
                now - HERE,
            ):
                return bool(found[0][0])
            if not self._is_open:
                break
            await self._database.rows(
                "INSERT INTO devices (number, key) VALUES ($1, $2) ON CONFLICT (number) DO NOTHING",
                number,
                signed.key,
            )
        raise await self._refusal(signed)

    async def _refusal(self, signed: Signed) -> No:
        found = await self._database.rows(
            "SELECT revoked, nonce, seen FROM devices WHERE number = $1", signed.number
        )
        if not found:
            return No(403, "the server does not know this key", "ask its operator to register it")
        revoked, nonce, seen = found[0]
        if revoked:
            return No(403, "this key was revoked", "ask the operator for a new invitation")
        if signed.nonce <= nonce:
            return No(401, "this request was seen before, or a later one was", "sign it anew", int(nonce))
        return No(
            409,
            f"a node with this key is connected, or was {self._now() - seen:.0f} s ago",
            "every node needs its own key; if the other one is gone, try again in a minute",
        )

    async def check_known(self, signed: Signed) -> None:
        """Refuse a device that is not registered, before its body is read."""
        if not await self._database.rows(
            "SELECT number FROM devices WHERE number = $1 AND revoked = 0", signed.number
        ):
            raise No(403, "the server does not know this key", "ask its operator to register it")

    async def task(self, device: int) -> Task | None:
        """What a device was asked last, unless it has answered. Nobody waits for what was asked before."""
        found = await self._database.rows(
            "SELECT id, kind, round, body, blob FROM tasks WHERE device = $1 AND expires > $2"
            " AND number = (SELECT max(number) FROM tasks WHERE device = $1)"
            " AND NOT EXISTS (SELECT 1 FROM answers WHERE task = tasks.id) LIMIT 1",
            device,
            self._now(),
        )
        if not found:
            return None
        name, kind, round_, body, blob = found[0]
        return Task(name, kind, round_, bytes(body), blob)

    async def answer(self, device: int, task: str, body: bytes) -> None:
        """Keep an answer. The same one again changes nothing; another one is refused."""
        digest = hashlib.sha256(body).digest()
        if await self._database.rows(
            "INSERT INTO answers (task, digest, body, came)"
            " SELECT tasks.id, $3, $4, $5 FROM tasks JOIN devices ON devices.number = tasks.device"
            " WHERE tasks.id = $2 AND devices.number = $1 AND devices.revoked = 0 AND tasks.expires > $5"
            " ON CONFLICT (task) DO NOTHING RETURNING task",
            device,
            task,
            digest,
            body,
            self._now(),
        ):
            return
        kept = await self._database.rows(
            "SELECT digest FROM answers JOIN tasks ON tasks.id = task WHERE task = $2 AND device = $1",
            device,
            task,
        )
        if not kept:
            raise No(410, "this device has no such task, or not any more", "check in again")
        if bytes(kept[0][0]) != digest:
            raise No(409, "the task was answered already", "check in again")

    async def register(self, key: bytes, name: str) -> None:
        """Let an invited device in."""
        if not await self._database.rows(_REGISTER, device_number(key), key, name):
            raise No(403, "this key was revoked", "ask the operator for a new invitation")


_REGISTER = (
    "INSERT INTO devices (number, key, name) VALUES ($1, $2, $3)"
    " ON CONFLICT (number) DO UPDATE SET name = excluded.name WHERE devices.revoked = 0 RETURNING number"
)


class Store:
    """What the operator and the coordinator ask."""

    def __init__(self, database: Connection, now: Callable[[], float] = time.time) -> None:
        self._database, self._now = database, now

    def close(self) -> None:
        """End the connection."""
        self._database.close()

    def nodes(self) -> Nodes:
        """How many there are."""
        found = self._database.rows(
            "SELECT count(*), coalesce(sum(CASE WHEN seen > $1 THEN 1 ELSE 0 END), 0)"
            " FROM devices WHERE revoked = 0",
            self._now() - HERE,
        )
        return Nodes(int(found[0][0]), int(found[0][1]))

    def online(self) -> set[int]:
        """Devices that are there now."""
        found = self._database.rows(
            "SELECT number FROM devices WHERE revoked = 0 AND seen > $1", self._now() - HERE
        )
        return {int(row[0]) for row in found}

    def known(self) -> list[tuple[bytes, str, bool]]:
        """All keys that were ever registered: the key, its name, and whether it was revoked."""
        found = self._database.rows("SELECT key, name, revoked FROM devices ORDER BY number")
        return [(bytes(key), name, bool(revoked)) for key, name, revoked in found]

    def register(self, keys: Iterable[tuple[bytes, str]]) -> list[bytes]:
        """Let devices take part; returns the keys that were not known. A revoked key stays out."""
        here = {key for key, _, _ in self.known()}
        given = list(keys)
        self._database.many(
            _REGISTER.removesuffix(" RETURNING number"),
            [(device_number(key), key, name) for key, name in given],
        )
        return [key for key, _ in given if key not in here]

    def revoke(self, keys: Iterable[tuple[bytes, str]]) -> list[bytes]:
        """Exclude devices for good; returns the keys that could take part until now."""
        given = list(keys)
        here = {key for key, _, revoked in self.known() if not revoked}
        self._database.many(
            "INSERT INTO devices (number, key, name, revoked) VALUES ($1, $2, $3, 1)"
            " ON CONFLICT (number) DO UPDATE SET revoked = 1, session = '', seen = 0",
            [(device_number(key), key, name) for key, name in given],
        )
        return [key for key, _ in given if key in here]

    def take_over(self) -> int:
        """Become the coordinator: the number that every later sending and collecting is held to."""
        return int(self._database.rows("UPDATE coordinator SET fence = fence + 1 RETURNING fence")[0][0])

    def send(self, messages: Collection[Message], *, fence: int, seconds: float) -> list[str]:
        """Give devices something to answer; what has expired meanwhile is deleted."""
        now = self._now()
        self._database.rows("DELETE FROM tasks WHERE expires < $1 RETURNING id", now)
        number = int(self._database.rows("SELECT coalesce(max(number), 0) FROM tasks")[0][0]) + 1
        names = [secrets.token_hex(16) for _ in messages]
        self._database.many(
            "INSERT INTO tasks (id, number, device, kind, round, body, blob, fence, expires)"
            " SELECT $1, $2, $3, $4, $5, $6, $7, fence, $8 FROM coordinator WHERE fence = $9",
            [
                (name, max(number, int(now * 1000)), *message, now + seconds, fence)
                for name, message in zip(names, messages, strict=True)
            ],
        )
        self.check(fence)
        return names

    def check(self, fence: int) -> None:
        """Refuse a coordinator that was replaced."""
        if self._database.rows("SELECT fence FROM coordinator")[0][0] != fence:
            raise RunError(
                "another command coordinates this federation now",
                "only one does at a time: end this one, or see who started the other",
            )

    def collect(self, fence: int) -> list[Came]:
        """Answers that have come since; each is returned once."""
        found = self._database.rows(
            "UPDATE answers SET taken = 1 WHERE taken = 0 AND task IN (SELECT id FROM tasks WHERE fence = $1)"
            " AND EXISTS (SELECT 1 FROM coordinator WHERE fence = $1) RETURNING task, body,"
            " (SELECT device FROM tasks WHERE id = task)",
            fence,
        )
        return [Came(task, int(device), bytes(body)) for task, body, device in found]

    def blobs(self) -> set[str]:
        """Blobs that a task still names."""
        return {row[0] for row in self._database.rows("SELECT DISTINCT blob FROM tasks")}


class Blobs:
    """Immutable files named by their SHA-256, in FOLDER/network/blobs: any web server can hand them out."""

    def __init__(self, folder: Path) -> None:
        self.path = private_folder(home_of(folder) / "blobs")

    def put(self, content: bytes) -> str:
        """Keep a content; returns its name."""
        name = hashlib.sha256(content).hexdigest()
        path = self.path / name
        if path.exists():
            path.touch()
        else:
            write_atomically(path, content, mode=0o644)  # the folder is closed; nginx may be let into it
        return name

    def prune(self, used: Set[str]) -> None:
        """Delete what nothing has named for a while."""
        before = time.time() - _KEPT
        for path in self.path.iterdir():
            with suppress(FileNotFoundError):
                if path.name not in used and path.stat().st_mtime < before:
                    path.unlink()
