"""Connections to the server: how many there may be, and how long one may keep silent.

The web server itself waits for ever for a request, and takes as many connections as the system lets it.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from typing import Any, ClassVar

import uvloop
from uvicorn.protocols.http.h11_impl import H11Protocol

from solera.deploy.edge.limits import network

MOST = 768  # below the 1024 open files that systems usually allow; this machine itself is not counted
MOST_EVER = 4096  # where the system allows more open files
MOST_OF_ONE = 256  # of one address
OTHER_FILES = 256  # that a server has open
SILENCE = 10.0  # seconds that a request's first line and headers may take
CLOSING = 1.0  # seconds that a caller has to read the last answer
HEADERS = 16 * 1024  # bytes of first line and headers
_HERE = ("127.0.0.1", "::1")


def make_room(nodes: int) -> None:
    """Open as many files as the system allows, and take connections of so many nodes behind one address."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    Connection.most = max(MOST, min(most - OTHER_FILES, MOST_EVER))
    Connection.most_of_one = min(Connection.most, max(MOST_OF_ONE, 3 * nodes))


class Connection(H11Protocol):
    """A connection that is cut off when there are too many, or when it sends no request."""

    most: ClassVar[int] = MOST
    most_of_one: ClassVar[int] = MOST_OF_ONE
    _open: ClassVar[Counter[str]] = Counter()  # of all connections, by address

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or close it."""
        super().connection_made(transport)
        self._from = network(self.client)
        self._open[self._from] += 1
        self._idle_since = self.loop.time()
        self._next_look = self.loop.call_later(SILENCE, self._look)
        is_other = self._from not in _HERE
        if self._open[self._from] > self.most_of_one or (is_other and self._strangers() > self.most):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the count."""
        self._next_look.cancel()
        self._open[self._from] -= 1
        if not self._open[self._from]:
            del self._open[self._from]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what comes; callers who were refused may go on sending, which is dropped."""
        if not self.transport.is_closing():
            super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the caller to close as well."""
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self.loop.call_later(CLOSING, self.transport.abort)

    def _strangers(self) -> int:
        return self._open.total() - sum(self._open[each] for each in _HERE)

    def _look(self) -> None:
        """Cut it off if nothing is being answered and nothing was asked for too long."""
        is_busy = self.cycle is not None and not self.cycle.response_complete
        left = SILENCE if is_busy else self._idle_since + SILENCE - self.loop.time()
        if left > 0:
            self._next_look = self.loop.call_later(left, self._look)
        else:
            self.transport.abort()


class Loop(uvloop.Loop):
    """An event loop that gives up early on connections that never come to speak TLS."""

    async def create_server(self, *args: Any, **more: Any) -> Any:
        """The same, with a limit of time."""
        more["ssl_handshake_timeout"] = SILENCE if more.get("ssl") else None
        return await super().create_server(*args, **more)


OPTIONS: dict[str, Any] = {  # of the web server
    "interface": "asgi3",
    "workers": 1,
    "http": Connection,
    "ws": "none",
    "loop": "solera.deploy.edge.connections:Loop",
    "h11_max_incomplete_event_size": HEADERS,
    "forwarded_allow_ips": list(_HERE),  # whose X-Forwarded-For is believed
    "timeout_graceful_shutdown": 5,
}
