"""The services of threshold reports: a thin front of `privacy.reports`, each with a database of its own.

The helper, for devices; requests are signed as those of a federation are (`web.signing`):

    GET  /v1/reports                    terms of this epoch, public keys of both operators
    POST /v1/reports/EPOCH/request      blinded elements; the answer is what the helper has evaluated
    POST /v1/reports/EPOCH/message      sealed reports

The server, for the helper alone:

    POST /v1/epochs/EPOCH/part          reports in random order
    POST /v1/epochs/EPOCH/end           all of them have come: open, count, delete

An epoch begins and ends by the clock. When it has ended, the helper deletes its key and relays, again and
again until the server has everything. Whatever is asked twice is answered as the first time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import Field
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from solera.core.errors import DeployError
from solera.core.frozen import Frozen
from solera.federation.common.authority import read_public_key
from solera.federation.web.signing import WINDOW, Signed, read_signature, signed_headers
from solera.privacy.identity import public_identity
from solera.privacy.reports.helper import Helper
from solera.privacy.reports.oprf import ELEMENT_BYTES, ReportsError
from solera.privacy.reports.report import SEALED_BYTES, Terms
from solera.privacy.reports.server import Database, Server

_LOG = logging.getLogger("solera.reports")
_LOOK = 1.0  # seconds between looks at the clock
_PART = 10_000  # reports that are relayed at once
TAG = "reports"  # of every signature
T = TypeVar("T")


class Plan(Frozen):
    """What both operators and all devices agree on."""

    federation: str = Field(min_length=1, max_length=200)
    least_devices: int = Field(default=20, ge=2, le=300, description="T: what fewer have stays closed")
    reports: int = Field(default=210, ge=1, le=4096, description="of every device in an epoch")
    every: float = Field(default=86_400, ge=1, description="seconds of an epoch")

    def epoch(self, now: float) -> int:
        """Epochs are counted from 1970."""
        return int(now // self.every)

    def terms(self, epoch: int) -> Terms:
        """The terms of an epoch."""
        return Terms(self.federation, epoch, self.least_devices, self.reports)


class _Desk:
    """A party whose database is asked by one thread, and the checks that every request passes."""

    def __init__(self, plan: Plan, may: Callable[[Signed], bool]) -> None:
        self.plan, self._may = plan, may
        self._thread = ThreadPoolExecutor(1)

    async def ask(self, what: Callable[..., T], *given: Any) -> T:
        """The party's answer."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, what, *given)

    async def signed(self, request: Request, largest: int) -> tuple[Signed, bytes]:
        """Who asks, and the body that was signed."""
        names = ("content-digest", "signature-input", "signature")
        given = [request.headers.get(name, "") for name in names]
        found = read_signature(request.method, request.scope["path"], *given, tag=TAG)
        if found is None or abs(time.time() - found.created) > WINDOW:
            raise _Refusal(401, "the request is not signed as this service asks, or not now")
        if not self._may(found):
            raise _Refusal(403, "this service does not know the key")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > largest:
                raise _Refusal(413, f"the body has more than {largest:,} bytes")
        if hashlib.sha256(body).digest() != found.digest:
            raise _Refusal(401, "the body is not the one that was signed")
        return found, body

    def terms(self, request: Request) -> Terms:
        """The terms of the epoch that a request names."""
        return self.plan.terms(int(request.path_params["epoch"]))


class _Refusal(Exception):  # noqa: N818 - an answer, not a failure
    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


Endpoint = Callable[[Request], Awaitable[Response]]


def _answering(endpoint: Endpoint) -> Endpoint:
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except _Refusal as refusal:
            return JSONResponse({"error": str(refusal), "now": time.time()}, refusal.status)
        except ReportsError as refusal:
            return JSONResponse({"error": refusal.message, "now": time.time()}, 409)
        except (sqlite3.Error, DeployError) as error:
            _LOG.warning("a request was not answered: %r", error)
            return JSONResponse({"error": "the service cannot answer now"}, 503, {"retry-after": "2"})

    return answered


class Known:
    """The keys in a folder: NAME.pub, as OpenSSH writes them. New ones are found while the service runs."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._keys = folder, set[bytes]()

    def __call__(self, signed: Signed) -> bool:
        """Whether a key is there."""
        if signed.key not in self._keys:
            self._keys = {key for path in self._folder.glob("*.pub") if (key := _read(path))}
        return signed.key in self._keys


def _read(path: Path) -> bytes | None:
    with suppress(DeployError):
        return public_identity(read_public_key(path))
    return None


class Upstream:
    """The server, as the helper reaches it."""

    def __init__(self, url: str, key: ec.EllipticCurvePrivateKey, public: bytes) -> None:
        self._client, self._key, self.public = httpx.AsyncClient(base_url=url, timeout=120), key, public

    async def post(self, path: str, body: bytes) -> Any:
        """A signed request. Raises an error if it is not answered as it must be."""
        now = time.time()
        headers = signed_headers(
            self._key, "POST", path, body, tag=TAG, created=int(now), nonce=int(now * 1e6)
        )
        answer = await self._client.post(path, content=body, headers=headers)
        answer.raise_for_status()
        return answer.json()


def helper_app(plan: Plan, database: Path, devices: Callable[[Signed], bool], server: Upstream) -> Starlette:
    """The helper's service."""
    desk = _Desk(plan, devices)
    helper: Helper

    async def now(_: Request) -> Response:
        epoch = plan.epoch(time.time())
        public = await desk.ask(helper.begin, plan.terms(epoch))
        keys = {"helper": public.hex(), "server": server.public.hex()}
        ends = plan.every * (epoch + 1)
        return JSONResponse(plan.model_dump() | {"epoch": epoch, "ends": ends} | keys)

    async def evaluate(request: Request) -> Response:
        signed, body = await desk.signed(request, plan.reports * ELEMENT_BYTES)
        answer = await desk.ask(helper.evaluate, desk.terms(request), str(signed.number), body)
        return Response(answer, media_type="application/octet-stream")

    async def accept(request: Request) -> Response:
        signed, body = await desk.signed(request, plan.reports * SEALED_BYTES)
        await desk.ask(helper.accept, desk.terms(request), str(signed.number), body)
        return JSONResponse({})

    async def relay_one(terms: Terms) -> None:
        count = await desk.ask(helper.close, terms)
        for part in await desk.ask(lambda: list(helper.parts(terms, _PART))):
            await server.post(f"/v1/epochs/{terms.epoch}/part", part)
        if count:
            await server.post(f"/v1/epochs/{terms.epoch}/end", b"")
        await desk.ask(helper.forget, terms)
        _LOG.info("epoch %d: %d reports were relayed", terms.epoch, count)

    async def tried(what: Awaitable[T], otherwise: T) -> T:
        """Whatever fails, the next look comes."""
        try:
            return await what
        except Exception as error:
            _LOG.warning("not everything was relayed, and it is tried again: %r", error)
            return otherwise

    async def relay() -> None:
        """Close what is over, and send it until the server has it."""
        while True:
            await asyncio.sleep(_LOOK)
            over = desk.ask(helper.unfinished, plan.federation, plan.epoch(time.time()))
            for terms in await tried(over, []):
                await tried(relay_one(terms), None)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal helper
        helper = await desk.ask(lambda: Helper(sqlite3.connect(database)))
        relaying = asyncio.create_task(relay())
        yield
        relaying.cancel()

    app = _app(
        lifespan,
        {"/v1/reports": now},
        {"/v1/reports/{epoch:int}/request": evaluate, "/v1/reports/{epoch:int}/message": accept},
    )
    # Pages of any origin are devices: a signature says who asks, and nothing that a browser adds.
    signature = ["content-digest", "signature-input", "signature"]
    app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["POST"], allow_headers=signature)
    return app


def server_app(
    plan: Plan, database: Callable[[], Database], key: X25519PrivateKey, helper: Callable[[Signed], bool]
) -> Starlette:
    """The server's service, with the database that is made for it. Only the helper may ask."""
    desk = _Desk(plan, helper)
    server: Server

    async def part(request: Request) -> Response:
        _, body = await desk.signed(request, _PART * SEALED_BYTES)
        return JSONResponse({"wrong": await desk.ask(server.receive, desk.terms(request), body)})

    async def end(request: Request) -> Response:
        await desk.signed(request, 0)
        done = await desk.ask(server.open, desk.terms(request))
        return JSONResponse(done._asdict())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal server
        server = await desk.ask(lambda: Server(database(), key))
        yield

    return _app(lifespan, {}, {"/v1/epochs/{epoch:int}/part": part, "/v1/epochs/{epoch:int}/end": end})


def _app(lifespan: Any, reading: dict[str, Endpoint], writing: dict[str, Endpoint]) -> Starlette:
    async def health(_: Request) -> Response:
        return JSONResponse({"ok": True})

    routes = [Route(path, _answering(each)) for path, each in ({"/health": health} | reading).items()]
    routes += [Route(path, _answering(each), methods=["POST"]) for path, each in writing.items()]
    return Starlette(routes=routes, lifespan=lifespan)
