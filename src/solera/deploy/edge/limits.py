"""Limits on the memory and time that unauthenticated callers may use on the server.

Flower reads a whole request before it looks at who sent it. So requests are read here first, within bounds
for each of them, for all together, and for all of one address. Only callers who have shown who they are may
send more than a little. A body that is too large is answered with 413. Callers who are too many or too slow
get 503, the one answer after which Flower's nodes try again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from flwr.common.constant import FAB_MAX_SIZE, FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nodes send arrays in pieces, the operator sends an app. What is not an array travels in one piece: twice as
# much leaves room for a node that lists a million users.
LARGEST = 2 * max(FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE, FAB_MAX_SIZE)
SMALL = 64 * 1024  # bytes that strangers may send, and whoever does not say beforehand how much it will be
WINDOW = 10.0  # seconds in which a body must have moved on, by SLOWEST
SLOWEST = 16 * 1024  # bytes per second
PATIENCE = 20.0  # seconds that a large body waits for others to give memory back; Flower's nodes wait for 30
MOST_ADDRESSES = 4096
NODES = 20  # behind one address


@dataclass(frozen=True)
class Bounds:
    """Of one part of the server. An address may have half of `requests` and `bytes`."""

    requests: int = 256  # at the same time
    bytes: int = 8 * LARGEST  # of large bodies in memory
    rate: float = 100.0  # requests per second and address, after the first `burst`
    burst: int = 2000
    largest: int = LARGEST  # bytes of one body

    @classmethod
    def for_nodes(cls, nodes: int) -> Bounds:
        """With room for so many nodes behind one address."""
        more = max(1.0, nodes / NODES)
        return cls(requests=round(cls.requests * more), rate=cls.rate * more, burst=round(cls.burst * more))


class RefusalError(Exception):
    """A request that is not served."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.response = PlainTextResponse(message, status, {"connection": "close"})


@dataclass
class Load:
    """Requests and bytes in flight."""

    requests: int = 0
    bytes: int = 0


@dataclass
class Caller(Load):
    """What an address has under way, and how many more requests it may send at once."""

    left: float = 0.0
    at: float = field(default_factory=time.monotonic)


class Callers:
    """The addresses seen last; those with nothing under way are forgotten when there are too many."""

    def __init__(self, burst: int) -> None:
        self._burst = burst
        self._known: OrderedDict[str, Caller] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, address: str) -> Caller:
        """The entry of an address."""
        caller = self._known.setdefault(address, Caller(left=self._burst))
        self._known.move_to_end(address)
        if len(self._known) > MOST_ADDRESSES:
            idle = next(name for name, each in self._known.items() if not each.requests)
            del self._known[idle]
        return caller


class Limits:
    """An app, behind bounds of its own. `is_trusted` tells by its headers whether a request may be large."""

    def __init__(self, app: ASGIApp, bounds: Bounds, is_trusted: Callable[[Scope], bool]) -> None:
        self._app, self._bounds, self._is_trusted = app, bounds, is_trusted
        self._callers, self._all = Callers(bounds.burst), Load()
        self._freed = asyncio.Condition()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the request, hand it on, and give back what it took."""
        caller = self._callers.of(network(scope.get("client")))
        try:
            self._enter(caller)
            try:
                await self._serve(caller, scope, receive, send)
            finally:
                caller.requests -= 1
                self._all.requests -= 1
        except RefusalError as refusal:
            await refusal.response(scope, receive, send)

    def _enter(self, caller: Caller) -> None:
        now = time.monotonic()
        caller.left = min(self._bounds.burst, caller.left + (now - caller.at) * self._bounds.rate)
        caller.at = now
        if caller.left < 1:
            raise RefusalError(503, "too many requests from this address")
        most = self._bounds.requests
        if self._all.requests >= most or caller.requests >= most // 2:
            raise RefusalError(503, "too many requests at once")
        caller.left -= 1
        caller.requests += 1
        self._all.requests += 1

    async def _serve(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        size = _declared(scope)
        if size > self._bounds.largest:
            raise RefusalError(413, f"larger than {self._bounds.largest} bytes")
        if size <= SMALL:
            await self._pass(max(size, SMALL), scope, receive, send)
            return
        if not await run_in_threadpool(self._is_trusted, scope):
            raise RefusalError(401, f"more than {SMALL} bytes from an unknown sender")
        await self._reserve(caller, size)
        try:
            await self._pass(size, scope, receive, send)
        finally:
            caller.bytes -= size
            self._all.bytes -= size
            async with self._freed:
                self._freed.notify_all()

    async def _reserve(self, caller: Caller, size: int) -> None:
        """Take memory for a whole body, so that one that has begun can always be read to its end."""

        def fits() -> bool:
            most = self._bounds.bytes
            return self._all.bytes + size <= most and caller.bytes + size <= most // 2

        try:
            async with asyncio.timeout(PATIENCE), self._freed:
                await self._freed.wait_for(fits)
                caller.bytes += size
                self._all.bytes += size
        except TimeoutError:
            raise RefusalError(503, "too many bytes in flight") from None

    async def _pass(self, most: int, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read(most, receive)
        if body is not None:
            await self._app(scope, _again(body, receive), send)


async def _read(most: int, receive: Receive) -> bytes | None:
    """The whole body; None if the caller has gone."""
    pieces: list[bytes] = []
    clock = asyncio.get_running_loop().time
    size, until, enough = 0, clock() + WINDOW, WINDOW * SLOWEST
    while True:
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise RefusalError(503, "too slow") from None
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            raise RefusalError(413, f"larger than {most} bytes")
        if not message.get("more_body", False):
            return b"".join(pieces)
        if size >= enough:
            until, enough = clock() + WINDOW, size + WINDOW * SLOWEST


def network(client: tuple[str, int] | None) -> str:
    """Whom a caller is counted as: an address, or the whole network that one IPv6 customer has."""
    try:
        address = ip_address(client[0] if client else "")
    except ValueError:
        return "unknown"
    if isinstance(address, IPv6Address) and not address.is_loopback:
        return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
    return str(address)


def _declared(scope: Scope) -> int:
    """What Content-Length says; the web server has made sure that there is one at most, and a number."""
    return max((int(value) for name, value in scope["headers"] if name == b"content-length"), default=0)


def _again(body: bytes, receive: Receive) -> Receive:
    """The request as one message; what comes after it is for whoever waits for the caller to go."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
