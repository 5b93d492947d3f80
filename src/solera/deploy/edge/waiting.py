"""Questions of nodes for messages, kept open until there is one.

Flower answers "nothing yet" at once, and its nodes ask every three seconds: a message waits for seconds, and
a thousand nodes ask three hundred times a second for nothing. A node that says so in a header is answered
when a message has come for it, with all its parts, or after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.runtime_pb2 import PushAppMessagesRequest, PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from google.protobuf.message import DecodeError

from solera.deploy.common.flower import WAIT_HEADER, kept_open
from solera.deploy.common.frames import TAKE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PUSH, _PART = "/v1/runtime/push-messages", "/v1/runtime/push-object"


class Arrivals:
    """Which nodes wait for a message, and which messages still lack parts."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, asyncio.Event] = {}
        self._by_flower: set[int] = set()  # nodes that have a message in Flower's database
        self._lacks: dict[int, set[str]] = {}  # parts, by node
        self._wanted: dict[str, set[int]] = {}  # nodes, by part

    def of(self, node: int) -> asyncio.Event:
        """What is set when the node's next message is there; an earlier question is answered now."""
        self._loop = asyncio.get_running_loop()
        if node in self._waiting:
            self._waiting[node].set()
        self._waiting[node] = asyncio.Event()
        return self._waiting[node]

    def by_flower(self, node: int) -> bool:
        """Whether a message for the node has come to Flower; told once."""
        if node not in self._by_flower:
            return False
        self._by_flower.discard(node)
        return True

    def came(self, nodes: Iterable[int]) -> None:
        """Messages have come for nodes. Any thread may tell."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake, tuple(nodes))

    def forget(self, node: int, event: asyncio.Event) -> None:
        """The question was answered."""
        if self._waiting.get(node) is event:
            del self._waiting[node]

    def pushed(self, request: PushAppMessagesRequest, missing: set[str]) -> None:
        """Messages have come, of which some parts are still missing."""
        for message, tree in zip(request.messages_list, request.message_object_trees, strict=False):
            node = message.metadata.dst_node_id
            lacks = {each.object_id for each in iterate_object_tree(tree)} & missing
            if not lacks:
                self._arrived(node)
                continue
            self._lacks[node] = lacks
            for part in lacks:
                self._wanted.setdefault(part, set()).add(node)

    def part(self, part: str) -> None:
        """A part has come."""
        for node in self._wanted.pop(part, ()):
            lacks = self._lacks.get(node, set())
            lacks.discard(part)
            if not lacks:
                self._lacks.pop(node, None)
                self._arrived(node)

    def _arrived(self, node: int) -> None:
        self._by_flower.add(node)
        self._wake([node])

    def _wake(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            if node in self._waiting:
                self._waiting.pop(node).set()


class Waiting:
    """An app for nodes whose questions may wait."""

    def __init__(self, app: ASGIApp, arrivals: Arrivals) -> None:
        self._app, self._arrivals = app, arrivals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask Flower; where it has nothing, wait and ask it again."""
        wait = _seconds(scope) if scope["path"] == TAKE else 0.0
        first = await receive() if wait else {}
        asked = Recorded(receive, first)
        node = 0 if first.get("more_body") else _node(asked.body)
        if not node:
            await self._app(scope, asked.replay() if wait else receive, send)
            return
        event = self._arrivals.of(node)  # before Flower is asked: nothing that comes meanwhile is missed
        try:
            answer = await _answer(self._app, scope, asked.replay())
            if answer.is_empty:
                async with asyncio.timeout(wait):
                    await event.wait()
                answer = await _answer(self._app, scope, asked.replay())
        except TimeoutError:
            pass
        finally:
            self._arrivals.forget(node, event)
        for message in answer.messages:
            await send(message)


class Noticing:
    """The app for the server's own programs; what they send to nodes is noticed."""

    def __init__(self, app: ASGIApp, arrivals: Arrivals) -> None:
        self._app, self._arrivals = app, arrivals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let Flower answer, and wake the nodes that a message is for."""
        if scope["path"] not in {_PUSH, _PART}:
            await self._app(scope, receive, send)
            return
        asked = Recorded(receive)
        answer = await _answer(self._app, scope, asked.receive)
        with suppress(DecodeError):
            if answer.is_good and scope["path"] == _PUSH:
                missing = PushAppMessagesResponse.FromString(answer.body).objects_to_push
                self._arrivals.pushed(PushAppMessagesRequest.FromString(asked.body), set(missing))
            elif answer.is_good:
                self._arrivals.part(PushObjectRequest.FromString(asked.body).object_id)
        for message in answer.messages:
            await send(message)


class Recorded:
    """A request that can be read again."""

    def __init__(self, receive: Receive, first: Message | None = None) -> None:
        self._receive, self._first = receive, first
        self._pieces: list[bytes] = [first.get("body", b"")] if first else []

    @property
    def body(self) -> bytes:
        """What was read of it."""
        return b"".join(self._pieces)

    async def receive(self) -> Message:
        """Read on."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._pieces.append(message.get("body", b""))
        return message

    def replay(self) -> Receive:
        """What was read, as one message, and then what comes after."""
        more = bool(self._first and self._first.get("more_body"))
        left: list[Message] = [{"type": "http.request", "body": self.body, "more_body": more}]

        async def again() -> Message:
            return left.pop() if left else await self._receive()

        return again


class Answered:
    """An app's answer, not sent yet."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def take(self, message: Message) -> None:
        """Keep a part of it."""
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        """What it says."""
        return b"".join(each.get("body", b"") for each in self.messages[1:])

    @property
    def is_good(self) -> bool:
        """Whether it is an answer and not an error."""
        return bool(self.messages) and self.messages[0].get("status") == 200

    @property
    def is_empty(self) -> bool:
        """Whether it says that there is no message."""
        return self.is_good and not self.body


async def _answer(app: ASGIApp, scope: Scope, receive: Receive) -> Answered:
    answer = Answered()
    await app(dict(scope), receive, answer.take)
    return answer


def _seconds(scope: Scope) -> float:
    found = [value for name, value in scope["headers"] if name == WAIT_HEADER.encode()]
    return kept_open(found[0]) if found else 0.0


def _node(body: bytes) -> int:
    try:
        return int(PullMessagesRequest.FromString(body).node.node_id)
    except DecodeError:
        return 0
