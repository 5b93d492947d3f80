"""What rounds see of devices, whatever the transport: who is there, something to answer, and answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from solera.core.errors import DeployError
from solera.federation.common.packets import from_bytes, to_bytes
from solera.federation.common.protocol import Packet, RefusalError
from solera.federation.node.work import SHARED
from solera.federation.web.database import POSTGRES, Place, connect
from solera.federation.web.store import Blobs, Message, Store

_LOCK = 0x736F6C657261  # of PostgreSQL, for the one that coordinates: "solera" in ASCII
_SMALL = 4096  # bytes of shared arrays that travel with every task
_AGAIN = 2.0  # seconds until a database that is away is asked again
_AWAY = 600.0  # … for which it is
_Found = TypeVar("_Found")


class Answered(NamedTuple):
    """An answer to something that was sent, or why there is none that can be read."""

    name: str
    packet: Packet | RefusalError
    size: int = 0  # bytes


class Network(Protocol):
    """The devices of a federation, by their numbers."""

    def online(self) -> set[int]:
        """Devices that are there now."""

    def send(self, kind: str, packets: Mapping[int, Packet], seconds: float, round_: str) -> dict[str, int]:
        """Give devices something to answer within so many seconds; returns names, each with its device."""

    def answers(self) -> list[Answered]:
        """What has come since; each answer once."""


class WebNetwork:
    """Devices that pull over HTTPS; the database is between them and the coordinator."""

    def __init__(self, folder: Path, place: Place | None = None) -> None:
        self._place = place or Place.read(folder)
        self._database = connect(self._place.database)
        self._store, self._blobs = Store(self._database), Blobs(folder)
        self._fence = 0

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Coordinate; a second one waits. With SQLite, the lock of the folder does that.

        A lock may be lost without notice, when a connection breaks or a copy of the database lives on. So
        everything is also held to a number that the next coordinator makes larger.
        """
        if self._place.database.startswith(POSTGRES):
            while not self._database.rows("SELECT pg_try_advisory_lock($1)", _LOCK)[0][0]:
                time.sleep(1.0)
        self._fence = self._store.take_over()
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """End the connection, and with it the lock."""
        self._store.close()

    def online(self) -> set[int]:
        """Devices that have checked in within the last minute."""
        return self._patiently(self._store.online)

    def send(self, kind: str, packets: Mapping[int, Packet], seconds: float, round_: str) -> dict[str, int]:
        """Put tasks into the database, where devices find them."""
        messages = [self._message(device, kind, round_, packet) for device, packet in packets.items()]
        names = self._patiently(lambda: self._store.send(messages, fence=self._fence, seconds=seconds))
        self._blobs.prune(self._store.blobs())
        return dict(zip(names, packets, strict=True))

    def answers(self) -> list[Answered]:
        """What devices have answered."""
        return [
            _read(task, body) for task, _, body in self._patiently(lambda: self._store.collect(self._fence))
        ]

    def _message(self, device: int, kind: str, round_: str, packet: Packet) -> Message:
        """What is the same for many devices is a file, and is named in the task."""
        shared = {name: values for name, values in packet.arrays.items() if name.startswith(SHARED)}
        if sum(values.nbytes for values in shared.values()) <= _SMALL:
            return Message(device, kind, round_, to_bytes(packet), "")
        own = {name: values for name, values in packet.arrays.items() if name not in shared}
        blob = self._blobs.put(to_bytes(Packet({}, shared)))
        return Message(device, kind, round_, to_bytes(Packet(packet.fields, own)), blob)

    def _patiently(self, ask: Callable[[], _Found]) -> _Found:
        """Ask a database that may be away for a while. What it has answered is asked once."""
        until = time.monotonic() + _AWAY
        while True:
            try:
                return ask()
            except DeployError:
                if time.monotonic() > until:
                    raise
            time.sleep(_AGAIN)


def _read(name: str, body: bytes) -> Answered:
    try:
        return Answered(name, from_bytes(body), len(body))
    except RefusalError as error:
        return Answered(name, error, len(body))
