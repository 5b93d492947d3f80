"""The requests of devices as one ASGI app. It keeps nothing: any worker may answer, and any may die."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from solera.core.errors import DeployError
from solera.core.frozen import Frozen
from solera.federation.common.address import OPEN, home_of, tag_of
from solera.federation.common.wire import (
    ADMIT,
    ANSWER,
    BLOB,
    CHECK_IN,
    HEALTH,
    LARGEST,
    PACKET,
    SMALL,
    pack_task,
)
from solera.federation.web.admission import Admission
from solera.federation.web.database import Asked, ask
from solera.federation.web.limits import moving
from solera.federation.web.signing import WINDOW, Signed, read_signature
from solera.federation.web.store import NAME, Desk, No, Task

_LOG = logging.getLogger("solera.server")
Endpoint = Callable[[Request], Awaitable[Response]]
_AWAY = 1.0  # seconds until a database that is away is asked again
_LOOK = 0.05  # seconds between looks for new tasks, while somebody waits
_HELD = 64 << 10  # bytes of an answer in memory while the rest is on its way
_SIGNED = ("content-digest", "signature-input", "signature")


@dataclass(frozen=True)
class Serving:
    """What a worker needs to know."""

    folder: Path
    database: str
    keys: Path | None  # of the federation; without, whoever calls is let in
    every: float = 20.0  # seconds between the check-ins of one device
    waiting: int = 2000  # devices whose check-in one worker keeps open for that long; others come back
    busy: int = 64 << 20  # bytes of answers that one worker hands on at a time, beside one of any size

    @property
    def tag(self) -> str:
        """Of every request's signature."""
        return tag_of(None if self.keys is None else self.keys / "ca.pem")


class CheckIn(Frozen):
    """What a device says."""

    session: str = Field(pattern="^[0-9a-f]{32}$", description="of the process that speaks for the device")
    wait: float = Field(default=0, ge=0, le=60, allow_inf_nan=False, description="seconds it would wait")
    leaving: bool = False


def make_app(serving: Serving) -> Starlette:
    """The app of one worker."""
    worker = _Worker(serving)
    routes = [
        Route(HEALTH, _answering(worker.health)),
        Route(CHECK_IN, _answering(worker.check_in), methods=["POST"]),
        Route(ANSWER + "{task}", _answering(worker.answer), methods=["POST"]),
        Route(BLOB + "{name}", _answering(worker.blob)),
        Route(ADMIT, _answering(worker.admit), methods=["POST"]),
    ]
    app = Starlette(
        routes=routes,
        lifespan=worker.lifespan,
        exception_handlers={HTTPException: _unknown},
    )
    app.state.worker = worker
    return app


def _answering(endpoint: Endpoint) -> Endpoint:
    """Whatever happens is an answer: a refusal, or that the device is to try again."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except No as error:
            said = {"error": error.error, "next": error.next, "now": time.time()}
            return JSONResponse(said if error.nonce is None else said | {"nonce": error.nonce}, error.status)
        except ClientDisconnect:
            return Response(status_code=408, headers={"connection": "close"})
        except HTTPException:
            raise
        except Exception as error:  # the database is away, or the disk is full
            _LOG.warning("a request was not answered: %r", error)
            said = {"error": "the server cannot answer now", "next": "it is asked again"}
            return JSONResponse(said, 503, {"retry-after": "2"})

    return answered


async def _unknown(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "next": "update Solera"}, error.status_code)


class _Worker:
    def __init__(self, serving: Serving) -> None:
        self._serving, self._tag = serving, serving.tag
        self._admission = None if serving.keys is None else Admission(serving.keys)
        self._blobs = home_of(serving.folder) / "blobs"
        self._waiting, self._held = 0, 0
        self._sending: set[int] = set()  # devices whose answer is on its way
        self._changed = asyncio.Event()
        self._room = asyncio.Condition()
        self.is_ending: Callable[[], bool] = lambda: False  # then nobody waits any more

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Connected to the database, and looking for tasks."""
        database = await self._connected()
        self._desk = Desk(database, is_open=self._tag == OPEN)
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            looking.cancel()
            self._changed.set()
            with suppress(asyncio.CancelledError):
                await looking
            await database.close()

    async def _connected(self) -> Asked:
        """The database, waited for if it is away."""
        while True:
            try:
                return await ask(self._serving.database)
            except Exception as error:
                _LOG.warning("the database does not answer: %r", error)
            await asyncio.sleep(_AWAY)

    async def _look(self) -> None:
        """Wake the waiting whenever tasks were sent."""
        newest = 0
        while True:
            await asyncio.sleep(_LOOK)
            if self.is_ending():
                self._changed.set()
            if not self._waiting:
                continue
            try:
                found = await self._desk.newest()
            except Exception as error:  # a database that is away; requests say so themselves
                _LOG.info("no look at the tasks: %r", error)
                await asyncio.sleep(1.0)
                continue
            if found > newest:
                newest = found
                self._changed.set()
                self._changed = asyncio.Event()

    async def health(self, _: Request) -> Response:
        """Whether this worker and its database answer."""
        await self._desk.newest()
        return JSONResponse({"ok": True})

    async def check_in(self, request: Request) -> Response:
        """A task; or, after a while without one, when to come back."""
        signed = self._signed(request)
        try:
            asked = CheckIn.model_validate_json(await self._body(request, signed, SMALL))
        except ValidationError:
            raise No(400, "this is not a check-in", "update Solera") from None
        changed = self._changed
        has_task = await self._desk.check_in(signed, asked.session, leaving=asked.leaving)
        if asked.leaving:
            return JSONResponse({})
        task = await self._desk.task(signed.number) if has_task else None
        if task is None and asked.wait and self._waiting < self._serving.waiting:
            task = await self._wait(signed.number, min(asked.wait, self._serving.every), changed, request)
        if task is None:
            waited = asked.wait and self._waiting < self._serving.waiting
            every = 0.0 if waited else self._serving.every
            return JSONResponse({"again": every * random.uniform(0.5, 1.5)})
        head = {"task": task.id, "kind": task.kind, "round": task.round, "blob": task.blob}
        return Response(pack_task(head, task.body), media_type=PACKET)

    async def _wait(
        self, number: int, seconds: float, changed: asyncio.Event, request: Request
    ) -> Task | None:
        """The device's next task, if one comes within a while."""
        until = time.monotonic() + seconds * random.uniform(0.75, 1.0)
        self._waiting += 1
        try:
            while (left := until - time.monotonic()) > 0 and not self.is_ending():
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), left)
                changed = self._changed
                task = await self._desk.task(number)
                if task is not None or await request.is_disconnected():
                    return task
        finally:
            self._waiting -= 1
        return None

    async def answer(self, request: Request) -> Response:
        """Keep an upload, or a step of a masked round."""
        signed = self._signed(request)
        await self._desk.check_known(signed)
        with (
            self._one_body_of(signed.number),
            SpooledTemporaryFile(_HELD, dir=str(self._blobs.parent)) as kept,
        ):
            await self._receive(request, LARGEST, kept, signed)
            async with self._in_memory(kept.tell()):
                kept.seek(0)
                await self._desk.answer(signed.number, request.path_params["task"], kept.read())
        return JSONResponse({})

    async def blob(self, request: Request) -> Response:
        """A file that nginx would send, where there is one."""
        name = request.path_params["name"]
        path = self._blobs / name
        if not NAME.fullmatch(name) or not path.is_file():
            raise No(404, "there is no such file, or not any more", "check in again")
        return FileResponse(path, headers={"cache-control": "public, max-age=31536000, immutable"})

    async def admit(self, request: Request) -> Response:
        """Let an invited device in."""
        if self._admission is None:
            raise No(404, "this server takes no invitations", "ask its operator")
        with BytesIO() as kept:
            await self._receive(request, SMALL, kept)
            body = kept.getvalue()
        try:
            key, name = await run_in_threadpool(self._admission.admit, body)
        except DeployError as error:
            raise No(403, error.message, error.hint or "") from None
        except OSError as error:
            said = f"the server cannot keep the key: {error.strerror}"
            raise No(503, said, "tell its operator") from None
        await self._desk.register(key, name)
        return JSONResponse({})

    def _signed(self, request: Request) -> Signed:
        """What the signature says; a refusal tells the server's clock."""
        headers = [request.headers.get(name, "") for name in _SIGNED]
        path = request.scope["path"]
        signed = read_signature(request.method, path, *headers, tag=self._tag)
        if signed is None:
            raise No(401, "the request is not signed as this federation asks", "update Solera; check --ca")
        if abs(time.time() - signed.created) > WINDOW:
            raise No(401, "the request's time is not now", "sign it with the server's time")
        return signed

    async def _body(self, request: Request, signed: Signed, largest: int) -> bytes:
        with BytesIO() as kept:
            await self._receive(request, largest, kept, signed)
            return kept.getvalue()

    async def _receive(
        self, request: Request, largest: int, into: IO[bytes], signed: Signed | None = None
    ) -> None:
        """Write a body to a file, if it is no longer than that and the one that was signed."""
        digest, size = hashlib.sha256(), 0
        async with moving() as has_moved:
            async for part in request.stream():
                size += len(part)
                has_moved(size)
                if size > largest:
                    raise No(413, f"the body has more than {largest:,} bytes", "update Solera")
                digest.update(part)
                into.write(part)
        if signed is not None and digest.digest() != signed.digest:
            raise No(401, "the body is not the one that was signed", "send it again")

    @contextmanager
    def _one_body_of(self, number: int) -> Iterator[None]:
        """A device sends one large body at a time: it takes room on the disk until it is whole."""
        if number in self._sending:
            raise No(429, "this device is sending an answer already", "it is asked again")
        self._sending.add(number)
        try:
            yield
        finally:
            self._sending.discard(number)

    @asynccontextmanager
    async def _in_memory(self, size: int) -> AsyncIterator[None]:
        """Room for a body that is whole: large ones wait for each other, and not for a slow line."""
        async with self._room:
            await self._room.wait_for(lambda: not self._held or self._held + size <= self._serving.busy)
            self._held += size
        try:
            yield
        finally:
            async with self._room:
                self._held -= size
                self._room.notify_all()
