"""A message with all its parts in one request, where Flower takes one request for each part.

Flower's own functions do the work, in one transaction: its check of who asks, its rules about runs, its
database. Left out are the layers around them, which take most of the time of a small request. A node that
does not know of this, or meets a server without it, uses Flower's requests.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import anyio
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PushAppMessagesRequest, PushAppMessagesResponse
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.error import FlowerError
from flwr.supercore.error.catalog import API_ERROR_MAP
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from google.protobuf.message import DecodeError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from solera.deploy.common.frames import GIVE, LARGEST, RECEIVE, SEND, TAKE, pack, unpack
from solera.deploy.edge.waiting import Arrivals

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

_LOG = logging.getLogger("solera.server")
_AT_ONCE = 2  # the database has one writer at a time: more threads would wait inside of it
_GOOD = 200
_THREADS = 8  # for all that Flower does itself


class Express:
    """An app that answers these requests, and lets another one answer the rest."""

    def __init__(self, app: ASGIApp, flower: Starlette, arrivals: Arrivals | None = None) -> None:
        self._app, self._flower, self._arrivals = app, flower, arrivals
        self._work = {TAKE: _take, GIVE: _give} if arrivals is None else {SEND: _send, RECEIVE: _receive}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a node or, where `arrivals` are told, the server's app."""
        work = self._work.get(scope["path"])
        if work is None:
            await self._app(scope, receive, send)
            return
        request = Request({**scope, "app": self._flower, "state": {}}, receive)
        body = await request.body()
        answer = await anyio.to_thread.run_sync(_answered, work, request, body, limiter=_limiter())
        if self._arrivals is not None and scope["path"] == SEND and answer.status_code == _GOOD:
            missing = set(PushAppMessagesResponse.FromString(bytes(answer.body)).objects_to_push)
            self._arrivals.pushed(PushAppMessagesRequest.FromString(unpack(body)[0]), missing)
        await answer(scope, receive, send)


@lru_cache(maxsize=1)
def _limiter() -> anyio.CapacityLimiter:
    """For all of these requests together; and fewer threads for all that Flower does itself."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
    return anyio.CapacityLimiter(_AT_ONCE)


def _answered(work: Any, request: Request, body: bytes) -> Response:
    try:
        return Response(work(request, body), media_type="application/octet-stream")
    except FlowerError as error:
        spec = API_ERROR_MAP[error.code]
        return JSONResponse(error.to_json(spec.public_message), spec.http_status_code)
    except HTTPException as error:
        return JSONResponse({"detail": error.detail}, error.status_code)
    except (DecodeError, ValueError) as error:
        return JSONResponse({"detail": f"cannot be read: {error}"[:200]}, 400)
    except Exception:
        _LOG.exception("a node's request failed")
        return JSONResponse({"detail": "Internal server error."}, 500)


def _take(request: Request, body: bytes) -> bytes:
    """The next message of a node and its parts; nothing if there is none. It counts as received.

    If parts are missing or too many bytes, none is given, and it does not count as received.
    """
    asked = PullMessagesRequest.FromString(body)
    request.state.protobuf_request = asked
    authenticate_node(request)
    state = request.app.state.linkstate_factory.state()
    with state.session():
        found = fleet_handlers.pull_messages(asked, state, state.object_store)
        if not found.messages_list:
            return b""
        run, tree = found.messages_list[0].metadata.run_id, found.message_object_trees[0]
        names = dict.fromkeys(each.object_id for each in iterate_object_tree(tree))
        contents = {name: state.get_object(run, name) for name in names}
        parts = {name: content for name, content in contents.items() if content}
        size = sum(map(len, parts.values()))
        if len(parts) == len(names) and size <= LARGEST:
            received = ConfirmMessageReceivedRequest(
                node=asked.node, run_id=run, message_object_id=tree.object_id
            )
            fleet_handlers.confirm_message_received(received, state, state.object_store)
            state.store_traffic(run, bytes_sent=size, bytes_recv=0)
        else:  # the node asks for the rest, and Flower checks whether the run goes on
            parts = {}
    return pack(found, parts)


def _give(request: Request, body: bytes) -> bytes:
    """Store a reply with its parts."""
    head, parts = unpack(body)
    asked = PushMessagesRequest.FromString(head)
    request.state.protobuf_request = asked
    authenticate_node(request)
    if len(asked.messages_list) != 1 or len(asked.message_object_trees) != 1:
        raise ValueError("one reply at a time")
    state = request.app.state.linkstate_factory.state()
    with state.session():
        taken = fleet_handlers.push_messages(asked, state)
        run = asked.messages_list[0].metadata.run_id
        _store(taken, parts, state, run)
        state.store_traffic(run, bytes_sent=0, bytes_recv=len(body))
    return bytes(taken.SerializeToString())


def _send(request: Request, body: bytes) -> bytes:
    """Store messages to nodes with their parts."""
    head, parts = unpack(body)
    state = request.app.state.linkstate_factory.state()
    task = authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), state)
    with state.session():
        taken = runtime_handlers.push_messages(PushAppMessagesRequest.FromString(head), state, task)
        _store(taken, parts, state, task.run_id)
    return bytes(taken.SerializeToString())


def _store(taken: Any, parts: dict[str, bytes], state: Any, run: int) -> None:
    """Store the parts that were asked for; those that are still missing stay in the answer."""
    missing = [
        name
        for name in taken.objects_to_push
        if name not in parts or not state.store_object(run, taken.session_id, name, parts[name])
    ]
    del taken.objects_to_push[:]
    taken.objects_to_push.extend(missing)


def _receive(request: Request, body: bytes) -> bytes:
    """Replies that have come, with their parts, up to a size; the others' parts are asked for one by one."""
    state = request.app.state.linkstate_factory.state()
    task = authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), state)
    parts: dict[str, bytes] = {}
    size = 0
    with state.session():
        found = runtime_handlers.pull_messages(PullAppMessagesRequest.FromString(body), state, task)
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            names = dict.fromkeys(each.object_id for each in iterate_object_tree(tree))
            contents = {name: state.get_object(task.run_id, name) for name in names}
            size += sum(len(each or b"") for each in contents.values())
            if size > LARGEST or not all(contents.values()):
                continue
            parts |= {name: content for name, content in contents.items() if content}
            state.object_store.delete(message.metadata.message_id)
    return pack(found, parts)
