"""Ask the media servers of the home again and again, beside the worker that answers the page."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from solera.core.errors import SoleraError
from solera.device.connectors import Connection, sync_due
from solera.service.worker import Worker

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
