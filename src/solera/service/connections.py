"""Connections to the service: when there are too many, one that asks for nothing makes room for a new one."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 64  # open at once; a browser opens 6


class Connection(H11Protocol):
    """A connection that another program may open and leave open, but never to keep the owner out."""

    _open: ClassVar[dict[Connection, None]] = {}  # the longest silent first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection. One too many ends another: one that waits for a request, if there is any."""
        super().connection_made(transport)
        self._open[self] = None
        if len(self._open) > MOST:
            ended = min(self._open, key=lambda each: each is self or each.is_busy)
            del self._open[ended]
            ended.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from those that are open."""
        self._open.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what comes."""
        if self in self._open:
            self._open[self] = self._open.pop(self)
        super().data_received(data)

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete
