"""How much, and for how long, a connection may take from the server before its request is whole.

uvicorn has a time limit for connections between requests alone, and none for the size of headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEADERS = 64 << 10  # bytes
_LOOK = 10.0  # seconds; a request whose headers are not there at two looks is cut off
_MOVES = 20.0  # seconds in which a body has to move on, and that it may take, and one more …
_SLOWEST = 16 << 10  # … for so many bytes


class Impatient(HttpToolsProtocol):
    """Cuts off who says nothing, or whose headers come slowly or without end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Watch it from now on."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._in_headers = False
        self._unused = 0  # bytes since the last request was answered
        self._stuck: object = self  # the request after which, at the last look, no other had come
        self._next_look = self.loop.call_later(_LOOK, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """No more looks."""
        self._next_look.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_headers, self._unused = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """It has no more headers."""
        self._in_headers = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Count what is no part of a request that is being answered."""
        super().data_received(data)
        self._unused = self._unused + len(data) if self._is_idle else 0
        if self._in_headers and self._unused > _HEADERS:
            self.transport.abort()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        late = self._is_idle and (self.cycle is None or self._unused > 0)
        if late and self._stuck is self.cycle:
            self.transport.abort()
            return
        self._stuck = self.cycle if late else self
        self._next_look = self.loop.call_later(_LOOK, self._look)


@asynccontextmanager
async def moving() -> AsyncIterator[Callable[[int], None]]:
    """A body that has to move on: call what this yields with the number of bytes that are there."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(_MOVES) as limit:
            yield lambda size: limit.reschedule(_MOVES + min(loop.time(), began + size / _SLOWEST))
    except TimeoutError:
        raise ClientDisconnect from None  # who is too slow is not there
