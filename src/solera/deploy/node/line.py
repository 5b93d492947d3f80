"""A node's line to the SuperLink: Flower's protocol for nodes, without Flower's node program.

Flower's own program takes two processes, asks for messages every three seconds, waits half a second for
each answer, and fetches the program that a server sends along. A line fetches messages and nothing else. It
asks a guarded server to keep a question open until there is a message, so an idle node asks rarely and a
busy one waits for nothing.
"""

from __future__ import annotations

import logging
import random
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Error, Message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, ErrorCode
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    inflate_object_from_contents,
    pull_objects,
    push_object_contents_from_iterable,
)
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from solera.core.errors import DeployError
from solera.deploy.common.flower import CONNECTED, WAIT, WAIT_HEADER, Address
from solera.deploy.common.frames import GIVE, LARGEST, TAKE, exchange, in_parts, pack, unpack
from solera.privacy.secagg.identity import new_identity

_LOG = logging.getLogger("solera.node")
_BEAT = 15.0  # seconds since the last heartbeat after which one goes before the next question
_OVERDUE = 28.0  # … after which one is sent beside whatever the node is doing
_FIRST, _LAST = (
    0.2,
    3.0,
)  # seconds between questions to a server that answers at once, growing while it is idle
_RETRY, _LONGEST = 1.0, 30.0  # seconds until the first repetition of what a server did not take; the longest
_BUSY = (502, 503, 504)
_PARTS_TIME = 600.0  # seconds that all parts of a message may take
FAILED = "the node could not answer; its log says why"  # an error's own words may tell of the device


class UnknownError(DeployError):
    """The server does not know this node, or not any more."""


class ConnectedError(DeployError):
    """The server thinks that a node with this key is there already."""


class _Waiting:
    """Tells a guarded server how long it may keep a question for messages open."""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Add the header."""
        if context.rpc_method == TAKE:
            context.request.headers[WAIT_HEADER] = f"{WAIT:g}"
        return call_next(context)


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a node's secret key."""
    try:
        found = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        found = None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise DeployError(f"{path} is not a node's secret key", "give --key nodes/NAME, without .pub")
    return found


def trust(address: Address) -> ssl.SSLContext | bool:
    """Whom a line believes to be the server."""
    return False if address.ca is None else ssl.create_default_context(cafile=address.ca)


class Line:
    """One node at one SuperLink. A line without a key registers one of its own."""

    def __init__(
        self,
        address: Address,
        key: ec.EllipticCurvePrivateKey | None,
        *,
        trusted: ssl.SSLContext | bool,
        stop: threading.Event | None = None,
        largest: int = LARGEST,
    ) -> None:
        """A reply of up to `largest` bytes travels in one request; an edge takes no other."""
        self._largest = largest
        self._key = key or new_identity()
        self._registers = key is None
        self._public = public_key_to_bytes(self._key.public_key())
        scheme = "http" if address.ca is None else "https"
        self._client = FleetHttpClient(
            f"{scheme}://{address}",
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(self._key, self._key.public_key()),
                _Waiting(),
            ],
            verify=trusted,
        )
        self._node: Node | None = None
        self._pause = _FIRST
        self._express = True  # until a server has shown that it takes Flower's requests alone
        self._beaten = 0.0
        self._received = ""  # the last message that came with all its parts, of which the server is told
        self.stop = stop or threading.Event()

    @property
    def node_id(self) -> int:
        """The number that the server knows the node by; 0 before it has joined."""
        return 0 if self._node is None else self._node.node_id

    @property
    def _joined(self) -> Node:
        """The node, once it has joined."""
        assert self._node is not None
        return self._node

    def join(self) -> None:
        """Join the server, waiting until it is there."""
        if self._registers and self._node is None:
            self._try(self._client.RegisterNode, RegisterNodeFleetRequest(public_key=self._public))
        asked = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        try:
            self._node = Node(node_id=self._try(self._client.ActivateNode, asked).node_id)
            self._beaten = time.monotonic()
        except httpx.HTTPStatusError as error:
            said = error.response.text
            if CONNECTED in said:
                raise ConnectedError("a node with this key is connected") from None
            raise UnknownError(f"the server does not know this key: {said[:200]}") from None

    def leave(self) -> None:
        """Tell the server that the node is gone, if the server is there."""
        self.stop.set()
        try:
            if self._node is not None:
                self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
                if self._registers:
                    self._client.UnregisterNode(UnregisterNodeFleetRequest(node_id=self._node.node_id))
        except (httpx.HTTPError, ValueError) as error:
            _LOG.info("the server was not told that the node leaves: %s", error)
        finally:
            self._client.close()

    def rejoin_after(self, seconds: float) -> None:
        """Leave, and join again after a while."""
        assert self._node is not None
        left, self._node = self._node, None
        self._try(self._client.DeactivateNode, DeactivateNodeRequest(node_id=left.node_id))
        if not self.stop.wait(seconds):
            self.join()

    def beat(self) -> None:
        """Tell the server that the node is there."""
        self._beaten = time.monotonic()
        asked = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        try:
            self._client.SendNodeHeartbeat(asked)
        except httpx.HTTPError as error:  # the next one may arrive
            _LOG.info("a heartbeat did not arrive: %s", error)

    @property
    def is_overdue(self) -> bool:
        """Whether the server may soon think that the node is gone."""
        late = time.monotonic() - self._beaten > _OVERDUE
        return self._node is not None and late and not self.stop.is_set()

    def receive(self) -> Message | None:
        """The next message; None if there is none within a while, or if its run has ended meanwhile."""
        if not self._express and time.monotonic() - self._beaten > _BEAT:
            self.beat()
        began = time.monotonic()
        found, parts = self._known(self._ask)
        if self._express:
            self._beaten = began  # a question to a guarded server is a heartbeat
        if not found.messages_list:
            if time.monotonic() - began < 1.0:  # a server that does not keep questions open
                self.stop.wait(self._pause)
                self._pause = min(2 * self._pause, _LAST)
            return None
        self._pause = _FIRST
        tree, run = found.message_object_trees[0], found.messages_list[0].metadata.run_id
        try:
            names = dict.fromkeys(each.object_id for each in iterate_object_tree(tree))
            missing = [name for name in names if name not in parts]
            if missing:
                parts |= pull_objects(
                    missing,
                    make_pull_object_fn_protobuf(self._trying(self._client.PullObject), self._joined, run),
                    max_time=_PARTS_TIME,
                    initial_backoff=0.1,
                    backoff_cap=2.0,
                )
                confirm = self._trying(self._client.ConfirmMessageReceived)
                make_confirm_message_received_fn_protobuf(confirm, self._joined, run)(tree.object_id)
            message = inflate_object_from_contents(tree.object_id, parts)
        except (ObjectPullError, httpx.HTTPStatusError) as error:
            _LOG.warning("a message did not come whole: %s", error)
            return None
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = tree.object_id  # it does not contain its own digest
        return message

    def send(self, reply: Message, seconds: float) -> None:
        """Send an answer that took so many seconds; one whose run has ended is dropped."""
        head, tree, contents = in_parts(reply)
        asked = PushMessagesRequest(
            node=self._node,
            messages_list=[head],
            message_object_trees=[tree],
            clientapp_runtime_list=[seconds],
        )
        try:
            taken = self._give(asked, contents) or self._try(self._client.PushMessages, asked)
            push = make_push_object_fn_protobuf(
                self._trying(self._client.PushObject), self._joined, reply.metadata.run_id, taken.session_id
            )
            missing = [(name, contents[name]) for name in taken.objects_to_push if name in contents]
            push_object_contents_from_iterable(missing, push)
        except httpx.HTTPStatusError as error:
            _LOG.warning("an answer was not taken: %s", error.response.text[:200])

    def _ask(self) -> tuple[PullMessagesResponse, dict[str, bytes]]:
        """The next message, if there is one, and its parts, if the server gives them along."""
        request = PullMessagesRequest(node=self._node)
        if self._express:
            try:
                named = PullMessagesRequest(node=self._node, message_ids=[self._received])
                head, parts = unpack(self._try(self._taken, named))
                found = PullMessagesResponse.FromString(head)
                if parts and self._received == found.message_object_trees[0].object_id:
                    return PullMessagesResponse(), {}  # it is here already
                if parts:
                    self._received = found.message_object_trees[0].object_id
                return found, parts
            except httpx.HTTPStatusError as error:
                if error.response.status_code not in {httpx.codes.NOT_FOUND, httpx.codes.CONFLICT}:
                    raise
                # A server of Flower alone; or a message that is to be asked for by Flower's request.
                self._express = error.response.status_code == httpx.codes.CONFLICT
        return self._try(self._client.PullMessages, request), {}

    def _taken(self, request: PullMessagesRequest) -> bytes:
        return exchange(self._client, TAKE, request.SerializeToString(), request)

    def _give(self, request: PushMessagesRequest, contents: dict[str, bytes]) -> PushMessagesResponse | None:
        """Send a reply with all its parts; None if the server, or the reply's size, does not allow it."""
        if not self._express or sum(map(len, contents.values())) > self._largest:
            return None
        body = pack(request, contents)
        taken = PushMessagesResponse()
        try:
            taken.ParseFromString(self._try(lambda text: exchange(self._client, GIVE, text), body))
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.CONFLICT:
                raise
            return None
        return taken

    def _known(self, ask: Callable[[], Any]) -> Any:
        """Ask the server; join again if it has forgotten the node, e.g. because its database is new."""
        try:
            return ask()
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.UNAUTHORIZED:
                _LOG.warning("the server refused a question: %s", error.response.text[:200])
            self.stop.wait(_RETRY)
            self.join()
            return ask()

    def _trying(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda request: self._try(call, request)

    def _try(self, call: Callable[[Any], Any], request: Any) -> Any:
        """Call the server until it answers."""
        pause = _RETRY
        while True:
            try:
                return call(request)
            except (httpx.TransportError, httpx.HTTPStatusError) as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code not in _BUSY:
                    raise
                _LOG.info("the server does not answer: %s", error)
                if self.stop.wait(pause * random.uniform(0.5, 1.0)):
                    raise
            pause = min(2 * pause, _LONGEST)


def failure(message: Message) -> Message:
    """The answer of a node that could not make one."""
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, FAILED), reply_to=message)


def keep_beating(lines: list[Line], stop: threading.Event) -> None:
    """Tell the server that nodes are there that have been at work for a while."""
    while not stop.wait(1.0):
        for line in lines:
            if line.is_overdue:
                line.beat()
