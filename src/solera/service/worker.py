"""The one thread that has the device open, and the one that asks the media servers of the home.

Connections of SQLite belong to their threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from solera.core.errors import SoleraError
from solera.device.connectors import Connection, sync_due
from solera.device.device import Device

Result = TypeVar("Result")


class Worker:
    """Runs one job after the other on an open device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="device")
        self._device: Device | None = None

    async def run(self, job: Callable[[Device], Result]) -> Result:
        """The result of a job in the thread of the device."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: job(self._opened()))

    async def settled(self) -> None:
        """Return when all jobs that were asked for before are done."""
        await self.run(lambda device: None)

    def _opened(self) -> Device:
        """The device, opened again if another program has changed its model."""
        device = self._device
        if device is not None and device.store.settings()["bundle"] != device.bundle.digest:
            device.close()
            device = None
        self._device = device or Device.open(self.folder)
        return self._device

    def close(self) -> None:
        """Wait for the job under way, and give the files back."""
        self._pool.submit(self._close)
        self._pool.shutdown()

    def _close(self) -> None:
        if self._device is not None:
            self._device.close()


_LOG = logging.getLogger(__name__)
_LOOK = 5.0  # seconds between two looks at whose time has come


async def refresh(folder: Path) -> None:
    """Run until cancelled. A server that does not answer is asked again at its next time."""
    worker, last = Worker(folder), dict[Connection, float]()
    try:
        while True:
            try:
                done = await worker.run(lambda device: sync_due(device, last))
            except SoleraError as error:
                _LOG.warning("media servers are not asked: %s", error.message)
            else:
                for each in done:
                    if each.error:
                        _LOG.warning("%s: %s", each.source, each.error)
            await asyncio.sleep(_LOOK)
    finally:
        worker.close()
