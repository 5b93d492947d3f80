"""A bad line between a node and its server: a proxy that delays, slows, stalls, cuts and resets connections.

It stands in for `tc netem`, without which many kernels are built. TCP hides a lost packet behind a wait of at
least 0.2 s, and so a loss is a stall here.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CHUNK = 1400  # bytes, as many as a packet holds


@dataclass
class Line:
    """What the line does to every piece of data, in both directions. May be changed while it is in use."""

    delay: float = 0.0  # seconds, each way
    bytes_per_second: float = float("inf")
    loss: float = 0.0  # share of pieces that come late
    lost_for: float = 0.2  # seconds
    is_cut: bool = False  # nothing arrives until this is False again; connections stay
    port: int = 0
    carried: int = 0  # bytes
    resets: int = 0
    _connections: set[asyncio.StreamWriter] = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop | None = None
    _chance: random.Random = field(default_factory=lambda: random.Random(0))

    def reset(self) -> None:
        """Break all connections, as a change of the IP address does."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._reset(), self._loop).result(5)

    async def _reset(self) -> None:
        self.resets += 1
        for each in list(self._connections):
            wait_for_nothing = struct.pack("ii", 1, 0)
            each.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, wait_for_nothing)
            each.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction of a connection."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=1000)
        loop = asyncio.get_running_loop()

        async def deliver() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                while self.is_cut:
                    await asyncio.sleep(0.05)
                if not data:
                    writer.write_eof() if writer.can_write_eof() else writer.close()
                    return
                self.carried += len(data)
                writer.write(data)
                await writer.drain()

        delivery = asyncio.create_task(deliver())
        try:
            while data := await reader.read(CHUNK):
                if self.bytes_per_second < float("inf"):
                    await asyncio.sleep(len(data) / self.bytes_per_second)
                late = self.lost_for if self._chance.random() < self.loss else 0.0
                await queue.put((loop.time() + self.delay + late, data))
            await queue.put((loop.time() + self.delay, b""))
            await delivery
        finally:
            delivery.cancel()


@contextmanager
def bad_line(port: int, **what: float) -> Iterator[Line]:
    """A port of this machine that leads to another one, over a line."""
    line = Line(**what)  # type: ignore[arg-type]
    ready = threading.Event()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line.is_cut:
            await asyncio.sleep(0.05)
        with suppress(OSError, asyncio.CancelledError):
            onward, back = await asyncio.open_connection("127.0.0.1", port)
            both = {writer, back}
            line._connections |= both
            try:
                with suppress(OSError):
                    await asyncio.gather(line.carry(reader, back), line.carry(onward, writer))
            finally:
                line._connections -= both
                back.transport.abort()
        writer.transport.abort()

    async def serve() -> None:
        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        line.port, line._loop = server.sockets[0].getsockname()[1], asyncio.get_running_loop()
        ready.set()
        with suppress(asyncio.CancelledError):
            await server.serve_forever()

    def run() -> None:
        with suppress(RuntimeError, asyncio.CancelledError):
            asyncio.run(serve())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield line
    finally:
        assert line._loop is not None
        line._loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(line._loop)])
        thread.join(5)
