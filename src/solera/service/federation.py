"""The federation from the page: read an invitation, agree, follow the node, pause and leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from solera.core.errors import ConfigError, SoleraError
from solera.core.frozen import Frozen
from solera.device.device import Device
from solera.device.ledger import NODE_WANTED
from solera.service.access import Access, body
from solera.service.worker import Worker

if TYPE_CHECKING:
    from solera.service.taking_part import NodeKeeper

_NEEDED = ("stamina", "psutil", "cryptography")  # of the extra


class Given(Frozen):
    """An invitation as the owner has pasted it."""

    text: str = Field(max_length=1_000_000)


class Change(Frozen):
    """What the node is to do."""

    do: Literal["start", "stop", "pause", "go on"]


class FederationRoutes:
    """The paths under /page/ by which a device takes part in a federation."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._changing = asyncio.Lock()  # one change at a time
        self._keeper: NodeKeeper | None = None

    def routes(self, access: Access) -> list[Route]:
        """All paths, each for the owner alone."""
        paths = [
            ("POST", "invitation", self.read),
            ("PUT", "invitation", self.agree),
            ("DELETE", "invitation", self.leave),
            ("GET", "part", self.show),
            ("PUT", "part", self.change),
        ]
        return access.of_owner(paths)

    async def open(self) -> None:
        """Start the node, if the owner has agreed to a federation on the page and has not stopped it."""
        with suppress(SoleraError):  # the page shows it
            if await self._worker.run(lambda device: device.store.settings().get(NODE_WANTED) == "yes"):
                keeper, part = self._needed()
                if await self._worker.run(part.is_wanted):
                    keeper.start()

    async def close(self) -> None:
        """End the node."""
        if self._keeper is not None:
            await self._keeper.stop()

    async def read(self, request: Request) -> Response:
        """What an invitation asks for. Nothing is kept, and nobody is connected to."""
        _, part = self._needed()
        text = (await body(request, Given)).text
        return JSONResponse(await self._worker.run(lambda device: part.asked(device, text)))

    async def agree(self, request: Request) -> Response:
        """Accept an invitation, and start the node."""
        keeper, part = self._needed()
        text = (await body(request, Given)).text
        async with self._changing:
            await self._worker.run(lambda device: part.agree(device, text))
            keeper.start()
        return await self.show(request)

    async def leave(self, request: Request) -> Response:
        """End the node, and remove the invitation with its key."""
        keeper, part = self._needed()
        async with self._changing:
            await keeper.stop()
            await self._worker.run(part.leave)
        return await self.show(request)

    async def show(self, _: Request) -> Response:
        """How the device takes part."""
        try:
            keeper, part = self._needed()
        except ConfigError as error:
            return JSONResponse({"missing": {"error": error.message, "next": error.hint}, "accepted": None})
        found = await self._worker.run(part.state)
        state, problem = keeper.status
        shown = problem and {"error": problem.message, "next": problem.hint}
        return JSONResponse({"missing": None, "node": state, "problem": shown} | found)

    async def change(self, request: Request) -> Response:
        """Start or stop the node, pause or go on."""
        keeper, part = self._needed()
        do = (await body(request, Change)).do
        jobs: dict[str, Callable[[Device], None]] = {
            "start": lambda device: part.want(device, True),
            "stop": lambda device: part.want(device, False),
            "pause": lambda device: part.pause(device, True),
            "go on": lambda device: part.pause(device, False),
        }
        async with self._changing:
            await self._worker.run(jobs[do])
            if do == "start" and await self._worker.run(part.is_wanted):
                keeper.start()
            elif do == "stop":
                await keeper.stop()
        return await self.show(request)

    def _needed(self) -> tuple[NodeKeeper, Any]:
        """What runs the node and what reads invitations; an error without the extra."""
        if not all(map(find_spec, _NEEDED)):
            raise ConfigError(
                "to take part in a federation needs more libraries", "pip install 'solera[node]'"
            )
        from solera.service import taking_part  # noqa: PLC0415 - needs the extra, and takes a while

        self._keeper = self._keeper or taking_part.NodeKeeper(self._worker.folder)
        return self._keeper, taking_part
