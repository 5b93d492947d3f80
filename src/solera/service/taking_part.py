"""Taking part in a federation: what the page shows of an invitation, and the node beside the service.

It needs the extra `node`, and is loaded when somebody asks for it.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from solera.core.errors import DeployError, SoleraError
from solera.core.text import clean_text
from solera.device import outbox
from solera.device.device import Device
from solera.device.ledger import JOINED, NODE_WANTED, PAUSED, Ledger
from solera.device.policy import Agreement, Policy
from solera.federation.common import connection
from solera.federation.common.address import Address, home_of
from solera.federation.common.invitation import Invitation
from solera.federation.node import accepted
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
        there = accepted.accepted(self._folder)
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


def asked(device: Device, text: str) -> dict[str, Any]:
    """What an invitation asks for, in words. Nothing of it is kept."""
    found = Invitation.parse(text)
    return _in_words(device, found, found.asked)


def agree(device: Device, text: str) -> None:
    """Keep an invitation, and agree to the federation that asks next."""
    accepted.accept(device, Invitation.parse(text))
    want(device, True)


def leave(device: Device) -> None:
    """Remove the household's key and the server's address. Whatever this device has joined is left."""
    want(device, False)
    accepted.leave(device)


def pause(device: Device, paused: bool) -> None:
    """Decline everything that this device has joined, or take part in it again."""
    ledger = Ledger(device.store)
    if paused:
        _change(ledger, JOINED, ledger.pause)
    else:
        _change(ledger, PAUSED, ledger.join)


def want(device: Device, wanted: bool) -> None:
    """Remember whether the node is to run while the service does."""
    device.store.set(NODE_WANTED, "yes" if wanted else "")


def is_wanted(device: Device) -> bool:
    """Whether the node is to run."""
    return device.store.settings().get(NODE_WANTED) == "yes" and accepted.accepted(device.path) is not None


def state(device: Device) -> dict[str, Any]:
    """The accepted invitation, what the owner has decided, and what has left the device since."""
    there = accepted.accepted(device.path)
    if there is None:
        return {"accepted": None}
    known = Ledger(device.store).federations()
    standings = {each["standing"] for each in known}
    agreed = next(
        (Agreement(**each["offer"]) for each in known if each["standing"] == JOINED), there.invitation.asked
    )
    latest = outbox.latest(device.store, since=int(there.ca.stat().st_mtime))
    return {
        "accepted": _in_words(device, there.invitation, agreed),
        "joined": JOINED in standings,
        "paused": PAUSED in standings,
    } | latest._asdict()


def _in_words(device: Device, invitation: Invitation, asked: Agreement) -> dict[str, Any]:
    policy = Policy.read(device.store)
    return {
        "federation": clean_text(invitation.federation),
        "server": clean_text(invitation.server),
        "asks": policy.sentences(asked),
        "declines": policy.conflicts(asked),
    }


def _change(ledger: Ledger, standing: str, to: Callable[[str], None]) -> None:
    for each in ledger.federations():
        if each["standing"] == standing:
            to(each["id"])
