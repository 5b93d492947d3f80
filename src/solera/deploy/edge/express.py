"""A message with all its parts in one request, where Flower takes one request for each part.

Flower checks who asks and whether a run goes on. The messages are kept in memory, see mailbox.py. What is too
large for one request goes by Flower's own requests: a node that has such a message waiting, or that answers
one, is told to use them (409). If Flower's database has messages from before, so is every node once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import anyio
from flwr.app import Metadata
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, SUPERLINK_NODE_ID, Status
from flwr.proto.fleet_pb2 import (
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.server.superlink.linkstate.utils import create_message_error_unavailable_res_message
from flwr.server.superlink.utils import check_abort
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.error import FlowerError
from flwr.supercore.error.catalog import API_ERROR_MAP
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from google.protobuf.message import DecodeError
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from solera.deploy.common.frames import GIVE, RECEIVE, SEND, TAKE, in_parts, pack, unpack
from solera.deploy.edge.mailbox import Content, FullError, Mailbox
from solera.deploy.edge.waiting import Arrivals

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

_LOG = logging.getLogger("solera.server")
_AT_ONCE = 2  # threads for these requests: they compute, so more would wait for each other
_THREADS = 8  # for all that Flower does itself
BY_FLOWER = "Use Flower's own request."
_BEAT = 12.0  # seconds between two heartbeats of a node that asks often
_FRESH = 1.0  # seconds that it is believed that a run goes on
Work = Callable[[Request, bytes], bytes]


class Express:
    """An app that answers these requests, and lets another one answer the rest."""

    def __init__(self, app: ASGIApp, flower: Starlette, work: dict[str, Work]) -> None:
        self._app, self._flower, self._work = app, flower, work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        work = self._work.get(scope["path"])
        if work is None:
            await self._app(scope, receive, send)
            return
        request = Request({**scope, "app": self._flower, "state": {}}, receive)
        body = await request.body()
        answer = await anyio.to_thread.run_sync(answered, work, request, body, limiter=_limiter())
        await answer(scope, receive, send)


@lru_cache(maxsize=1)
def _limiter() -> anyio.CapacityLimiter:
    """For all of these requests together; and fewer threads for all that Flower does itself."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
    return anyio.CapacityLimiter(_AT_ONCE)


def answered(work: Work, request: Request, body: bytes) -> Response:
    """What the work comes to, or why it cannot be done."""
    try:
        return Response(work(request, body), media_type="application/octet-stream")
    except Exception as error:
        status, said = _refusal(error)
        return JSONResponse(said, status)


def _refusal(error: Exception) -> tuple[int, Any]:
    """A status, and what is said."""
    match error:
        case FlowerError():
            spec = API_ERROR_MAP[error.code]
            return spec.http_status_code, error.to_json(spec.public_message)
        case HTTPException():
            return error.status_code, {"detail": error.detail}
        case DecodeError() | ValueError():
            return 400, {"detail": f"cannot be read: {error}"[:200]}
        case FullError():
            return 503, {"detail": "Too many messages are under way."}
        case OperationalError():  # the database is locked; what was begun is undone
            _LOG.warning("a request has to wait: %s", error.orig)
            return 503, {"detail": "The database is busy."}
    _LOG.error("a request failed", exc_info=error)
    return 500, {"detail": "Internal server error."}


class OfNodes:
    """What nodes ask for: their next message, and to take their answer."""

    def __init__(self, mailbox: Mailbox, arrivals: Arrivals) -> None:
        self._mailbox, self._arrivals = mailbox, arrivals
        self._goes_on: dict[int, float] = {}  # until when it is believed, by run
        self._beaten: dict[int, float] = {}  # when a node was last said to be there
        self._left_over: bool | None = None  # whether Flower's database had messages at the start
        self._asked: set[int] = set()  # nodes that have asked Flower for them
        self.work: dict[str, Work] = {TAKE: self.take, GIVE: self.give}

    def take(self, request: Request, body: bytes) -> bytes:
        """The next message of a node and its parts; nothing if there is none.

        A node names the message that it has received last, or an empty text if there is none. If it does not
        name the one that it was given last, that was lost on the way, and is given once more.
        """
        asked = PullMessagesRequest.FromString(body)
        state = _of_node(request, asked)
        node = asked.node.node_id
        self._beat(node, state)
        while letter := self._mailbox.next(node, asked.message_ids):
            if self._is_under_way(letter.run, state):
                question = letter.question
                found = PullMessagesResponse(
                    messages_list=[question.head], message_object_trees=[question.tree]
                )
                return pack(found, dict(question.parts))
        if self._arrivals.by_flower(node) or self._is_left_over(node, state):
            raise HTTPException(409, BY_FLOWER)
        return b""

    def _beat(self, node: int, state: Any) -> None:
        """Let a node's question count as its heartbeat."""
        now = time.monotonic()
        if now - self._beaten.get(node, -_BEAT) >= _BEAT:
            self._beaten[node] = now
            state.acknowledge_node_heartbeat(node, HEARTBEAT_DEFAULT_INTERVAL)

    def _is_left_over(self, node: int, state: Any) -> bool:
        """Whether Flower may have a message for the node from before this start; told once."""
        if self._left_over is None:
            self._left_over = state.num_message_ins() > 0
        if not self._left_over or node in self._asked:
            return False
        self._asked.add(node)
        return True

    def give(self, request: Request, body: bytes) -> bytes:
        """Keep a node's answer."""
        head, parts = unpack(body)
        asked = PushMessagesRequest.FromString(head)
        state = _of_node(request, asked)
        if len(asked.messages_list) != 1 or len(asked.message_object_trees) != 1:
            raise ValueError("one reply at a time")
        content = Content.of(asked.messages_list[0], asked.message_object_trees[0], parts)
        about = content.head.metadata
        if about.src_node_id != asked.node.node_id:
            raise ValueError("somebody else's reply")
        if not self._mailbox.answer(asked.node.node_id, content):
            raise HTTPException(409, BY_FLOWER)  # which takes it if the question was one of its own
        self._is_under_way(about.run_id, state)
        return bytes(PushMessagesResponse().SerializeToString())

    def _is_under_way(self, run: int, state: Any) -> bool:
        """Whether a run goes on; of one that does not, all messages are forgotten."""
        now = time.monotonic()
        if self._goes_on.get(run, 0.0) > now:
            return True
        if check_abort(run, [Status.PENDING, Status.STARTING, Status.FINISHED], state):
            self._mailbox.end(run)
            return False
        self._goes_on = {run: now + _FRESH}
        return True


class OfApp:
    """What the server's app asks for: to take its messages, and the answers that have come."""

    def __init__(self, mailbox: Mailbox, arrivals: Arrivals) -> None:
        self._mailbox, self._arrivals = mailbox, arrivals
        self.work: dict[str, Work] = {SEND: self.send, RECEIVE: self.receive}

    def send(self, request: Request, body: bytes) -> bytes:
        """Keep messages for their nodes, and wake those that wait for one."""
        head, parts = unpack(body)
        asked = PushAppMessagesRequest.FromString(head)
        _, task = _of_app(request)
        contents = [
            Content.of(message, tree, parts)
            for message, tree in zip(asked.messages_list, asked.message_object_trees, strict=True)
        ]
        if any(each.head.metadata.run_id != task.run_id for each in contents):
            raise ValueError("a message of another run")
        names = self._mailbox.post(task.run_id, contents)
        self._arrivals.came(each.head.metadata.dst_node_id for each in contents)
        return bytes(PushAppMessagesResponse(message_ids=names).SerializeToString())

    def receive(self, request: Request, body: bytes) -> bytes:
        """Answers that have come; errors in the place of those that will not come."""
        state, task = _of_app(request)
        answers, others = self._mailbox.collect(
            task.run_id, PullAppMessagesRequest.FromString(body).message_ids
        )
        online = state.get_nodes(task.run_id) if others else set()
        lost = {name: node for name, node in others.items() if node not in online}
        self._mailbox.withdraw(lost)
        answers += [_unavailable(name, node, task.run_id) for name, node in lost.items()]
        found = PullAppMessagesResponse(
            messages_list=[each.head for each in answers],
            message_object_trees=[each.tree for each in answers],
        )
        return pack(found, {name: part for each in answers for name, part in each.parts.items()})


def _of_node(request: Request, asked: Any) -> Any:
    """Flower's database, for a node that has signed its request."""
    request.state.protobuf_request = asked
    authenticate_node(request)
    return request.app.state.linkstate_factory.state()


def _of_app(request: Request) -> tuple[Any, Any]:
    """Flower's database, and the task of the app that asks."""
    state = request.app.state.linkstate_factory.state()
    return state, authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), state)


def _unavailable(name: str, node: int | None, run: int) -> Content:
    """Flower's error for a message that is not here, or whose node is gone."""
    about = Metadata(
        run_id=run,
        message_id=name,
        src_node_id=SUPERLINK_NODE_ID,
        dst_node_id=node or 0,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=0.0,
        message_type="train",
    )
    error = create_message_error_unavailable_res_message(
        about, "msg_unavail" if node is None else "node_unavail"
    )
    return Content(*in_parts(error))
