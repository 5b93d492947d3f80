"""The node of a device, run beside the service: started again whenever it ends, until its owner stops it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from pathlib import Path
from typing import Literal, NamedTuple

from solera.core.errors import DeployError, SoleraError
from solera.federation.common import connection
from solera.federation.common.address import Address, home_of
from solera.federation.node.accepted import accepted
from solera.federation.operate.processes import Process

LOG = "node.log"
_CONNECTED = "takes part; "  # as `solera node start` says
_ERROR = re.compile(r"^error: (.*)\n(?:next: (.*))?", re.MULTILINE)
_LOOK = 0.3  # seconds between two looks at the node's log
_SILENT, _ENDED = 10.0, 60.0  # seconds until the next attempt; a node that starts loads torch
_ASK = 30.0  # seconds between two looks whether the server of a connected node still answers

State = Literal["off", "waiting", "connecting", "connected", "failed"]


class Status(NamedTuple):
    """How the node is doing, and what keeps it from taking part."""

    state: State
    problem: SoleraError | None = None


class NodeKeeper:
    """Runs `solera node start` for one device folder. All methods belong to the thread of the event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._task: asyncio.Task[None] | None = None
        self.status = Status("off")

    def start(self) -> None:
        """Keep the node running."""
        if self._task is None or self._task.done():
            self.status = Status("connecting")
            self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End the node and everything that it has started."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.status = Status("off")

    async def _keep(self) -> None:
        while True:
            try:
                await self._run()
            except connection.SilenceError as error:
                self.status = Status("waiting", error)
                await asyncio.sleep(_SILENT)
            except SoleraError as error:
                self.status = Status("failed", error)
                await asyncio.sleep(_ENDED)
            except OSError as error:
                problem = DeployError(f"the node cannot be started: {error.strerror}", "see the disk's space")
                self.status = Status("failed", problem)
                await asyncio.sleep(_ENDED)

    async def _run(self) -> None:
        """One start of the node; it ends with an error."""
        there = accepted(self._folder)
        if there is None:
            raise DeployError("this device has accepted no invitation", "paste one")
        await asyncio.to_thread(connection.check, there.address)
        self.status = Status("connecting")
        command = [sys.executable, "-m", "solera", "node", "start", str(self._folder.resolve())]
        environment = {**os.environ, "TERM": "dumb", "NO_COLOR": "1"}
        # from this thread, so that the node ends with the service even if that is killed
        process = Process(command, environment, home_of(self._folder) / LOG)
        try:
            await self._watch(process, there.address)
        finally:
            await asyncio.to_thread(process.stop)
        raise _why(process)

    async def _watch(self, process: Process, address: Address) -> None:
        """Follow the node until it ends."""
        asked = time.monotonic()
        while process.is_running:
            if self.status.state == "connecting" and _CONNECTED in process.said():
                self.status, asked = Status("connected"), time.monotonic()
            if self.status.state != "connecting" and time.monotonic() - asked > _ASK:
                asked = time.monotonic()
                try:
                    await asyncio.to_thread(connection.check, address)
                    self.status = Status("connected")
                except connection.SilenceError as error:  # the node itself waits until it answers again
                    self.status = Status("waiting", error)
            await asyncio.sleep(_LOOK)


def _why(process: Process) -> SoleraError:
    """What `solera node start` complained about."""
    found = _ERROR.findall(process.said())
    if not found:
        return DeployError("the node has ended", f"see its log, {process.log}")
    message, hint = found[-1]
    kind = connection.SilenceError if message.startswith("no server answers") else DeployError
    return kind(message, hint)
