"""Where the members of an edge connect: the part of Flower's protocol for nodes that a line speaks.

A member joins, asks for orders, gives answers and leaves, as it does at a server, with the same requests and
its own key. An order is given again until it is answered: a line may break while an order is on its way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Message, Metadata
from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    DeactivateNodeResponse,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatResponse
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from google.protobuf.message import DecodeError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from solera.core.errors import DeployError
from solera.deploy.common.authority import read_public_key
from solera.deploy.common.envelopes import member_number
from solera.deploy.common.flower import WAIT_HEADER, kept_open
from solera.deploy.common.frames import GIVE, TAKE, in_parts, pack, unpack
from solera.deploy.common.messages import TYPES, from_content, to_content
from solera.deploy.common.protocol import Reason, RefusalError
from solera.deploy.edge.signatures import is_signed, key_of
from solera.deploy.operate.relaying import Relaying
from solera.privacy.secagg import public_identity

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_LOG = logging.getLogger("solera.edge")
_ABSENT = 60.0  # seconds without a word after which a member is not there
_TTL = 3600.0  # seconds; an order is given only while its relay is under way


@dataclass
class Place:
    """A member's place at the desk."""

    number: int
    name: str
    seen: float = 0.0  # when it last said something; 0 if it is not there
    given: str = ""  # name of the message that it was given last
    event: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_here(self) -> bool:
        """Whether the member is connected."""
        return bool(self.seen) and time.monotonic() - self.seen < _ABSENT


class Desk:
    """The web app for members, and the relay that is under way."""

    def __init__(self, keys: Path, tell: Callable[[str], None]) -> None:
        self._places = _places(keys)
        self._tell, self._told = tell, -1
        self._relaying: Relaying | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._places)

    def is_known(self, key: bytes) -> bool:
        """Whether a public key is a member's."""
        return key in self._places

    def here(self) -> list[int]:
        """Members that are connected."""
        return [place.number for place in list(self._places.values()) if place.is_here]

    def carry(self, relaying: Relaying | None) -> None:
        """Hand out the orders of a relay from now on; of none, if it is over."""
        self._relaying = relaying
        if relaying is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for place in self._places.values():
            place.event.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of a member."""
        self._loop = asyncio.get_running_loop()
        await (await self._answer(Request(scope, receive)))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.url.path == "/health":
            return PlainTextResponse("ok")
        if not await run_in_threadpool(is_signed, request.scope, self.is_known):
            return PlainTextResponse("this edge does not know the key", 401)
        place = self._places[key_of(request.scope)]
        place.seen = time.monotonic()
        work = {
            "/v1/fleet/activate-node": self._join,
            "/v1/fleet/deactivate-node": self._leave,
            "/v1/fleet/send-node-heartbeat": self._beat,
            TAKE: self._take,
            GIVE: self._give,
        }.get(request.url.path)
        if work is None:
            return PlainTextResponse("an edge does not offer this", 404)
        try:
            return Response(await work(place, request), media_type="application/octet-stream")
        except (DecodeError, ValueError, IndexError, KeyError) as error:
            return PlainTextResponse(f"cannot be read: {error}"[:200], 400)

    async def _join(self, place: Place, _: Request) -> bytes:
        if (here := len(self.here())) != self._told:
            self._told = here
            self._tell(f"{here} of {len(self)} members are here")
        return bytes(ActivateNodeResponse(node_id=place.number).SerializeToString())

    async def _leave(self, place: Place, _: Request) -> bytes:
        place.seen = 0.0
        self._gone(place)
        return bytes(DeactivateNodeResponse().SerializeToString())

    async def _beat(self, _: Place, __: Request) -> bytes:
        return bytes(SendNodeHeartbeatResponse(success=True).SerializeToString())

    async def _take(self, place: Place, request: Request) -> bytes:
        """The member's order; nothing if there is none after a while."""
        place.event.clear()
        if not self._has_order(place):
            try:
                async with asyncio.timeout(kept_open(request.headers.get(WAIT_HEADER, ""))):
                    await place.event.wait()
            except TimeoutError:
                pass
        place.seen = time.monotonic()
        return await run_in_threadpool(self._order, place)

    def _has_order(self, place: Place) -> bool:
        return self._relaying is not None and self._relaying.is_waiting_for(place.number)

    def _order(self, place: Place) -> bytes:
        relaying = self._relaying
        order = relaying.order(place.number) if relaying else None
        if relaying is None or order is None:
            return b""
        metadata = Metadata(
            run_id=1,
            message_id="",
            src_node_id=1,
            dst_node_id=place.number,
            reply_to_message_id="",
            group_id=relaying.group,
            created_at=time.time(),
            ttl=_TTL,
            message_type=TYPES[relaying.relay.kind],
        )
        message = Message(to_content(order), metadata=metadata)  # type: ignore[call-overload]
        head, tree, parts = in_parts(message)
        place.given = tree.object_id
        return pack(PullMessagesResponse(messages_list=[head], message_object_trees=[tree]), parts)

    async def _give(self, place: Place, request: Request) -> bytes:
        await run_in_threadpool(self._taken, place, await request.body())
        return bytes(PushMessagesResponse().SerializeToString())

    def _taken(self, place: Place, body: bytes) -> None:
        """Pass an answer to the relay under way; one to another relay is dropped."""
        head, parts = unpack(body)
        asked = PushMessagesRequest.FromString(head)
        message = inflate_object_from_contents(asked.message_object_trees[0].object_id, parts)
        relaying = self._relaying
        if not isinstance(message, Message):
            raise ValueError("not a message")
        if relaying is not None and message.metadata.reply_to_message_id == place.given:
            try:
                if message.has_error():
                    raise RefusalError(Reason.FAILED, str(message.error.reason))
                relaying.take(place.number, from_content(message.content))
            except RefusalError as error:
                _LOG.warning("%s: %s: %s", place.name, error.reason, error.message)
                self._gone(place)

    def _gone(self, place: Place) -> None:
        if self._relaying is not None:
            self._relaying.gone(place.number)


def _places(keys: Path) -> dict[bytes, Place]:
    """A place for every public key in a folder of keys."""
    found = {}
    for path in sorted((keys / "nodes").glob("*.pub")):
        key = read_public_key(path, "remove it from the folder")
        found[public_key_to_bytes(key)] = Place(member_number(public_identity(key)), path.stem)
    if not found:
        raise DeployError(f"{keys / 'nodes'} has no keys of members", "copy their .pub files into it")
    return found
