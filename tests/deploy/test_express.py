"""A message reaches its node, whatever happens to the connection; with Flower's own database of runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, SubStatus
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse, PushAppMessagesRequest
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore import sql_mixin
from flwr.supercore.constant import NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from solera.deploy.common.frames import in_parts, pack, unpack
from solera.deploy.edge import express
from solera.deploy.edge.express import OfApp, OfNodes
from solera.deploy.edge.guard import wait_for_database
from solera.deploy.edge.mailbox import FullError, Mailbox
from solera.deploy.edge.waiting import Arrivals
from solera.deploy.server.replies import read


class World:
    """A run under way, and one node."""

    def __init__(self, factory: LinkStateFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state: Any = factory.state()
        self.node = self.register()
        self.run = self.state.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, "", "flwr-serverapp")
        info: Any = self.state.get_run_info(run_ids=[self.run])[0]
        self.task = info.primary_task_id
        assert self.state.claim_task(self.task)
        assert self.state.activate_task(self.task)
        self.request: Any = SimpleNamespace(
            app=SimpleNamespace(state=SimpleNamespace(linkstate_factory=factory)),
            state=SimpleNamespace(),
            headers={},
        )
        monkeypatch.setattr(express, "authenticate_node", lambda request: None)
        monkeypatch.setattr(express, "authenticate_task", lambda *_: SimpleNamespace(run_id=self.run))
        monkeypatch.setattr(express, "_FRESH", 0.0)
        self.start()

    def start(self, most: int = 1 << 20) -> None:
        """Start the server, or start it again."""
        self.mailbox, arrivals = Mailbox(most), Arrivals()
        self.of_nodes, self.of_app = OfNodes(self.mailbox, arrivals), OfApp(self.mailbox, arrivals)

    def register(self) -> int:
        node: int = self.state.create_node("", "", os.urandom(8), 60)
        assert self.state.activate_node(node, 60)
        return node

    def send(self, text: str, ttl: float = 60.0) -> str:
        """Send a message to the node."""
        message = self._message(text, SUPERLINK_NODE_ID, self.node, "", ttl)
        head, tree, parts = in_parts(message)
        asked = PushAppMessagesRequest(messages_list=[head], message_object_trees=[tree])
        self.of_app.send(self.request, pack(asked, parts))
        return message.metadata.message_id

    def take(self, *received: str) -> str:
        """Ask for a message; returns its name, and empty if there is none."""
        asked = PullMessagesRequest(node=Node(node_id=self.node), message_ids=received)
        head, parts = unpack(self.of_nodes.take(self.request, asked.SerializeToString()))
        found = PullMessagesResponse.FromString(head)
        if not found.messages_list:
            return ""
        assert parts
        return str(found.message_object_trees[0].object_id)

    def give(self, question: str, node: int = 0, source: int = 0, lacking: bool = False) -> None:
        """Answer a message."""
        node = node or self.node
        reply = self._message("answer", source or node, SUPERLINK_NODE_ID, question, 30.0)
        head, tree, parts = in_parts(reply)
        asked = PushMessagesRequest(
            node=Node(node_id=node), messages_list=[head], message_object_trees=[tree]
        )
        if lacking:
            parts.popitem()
        self.of_nodes.give(self.request, pack(asked, parts))

    def receive(self, *questions: str) -> dict[str, str]:
        """What came in answer to messages: a text, or an error's."""
        request = PullAppMessagesRequest(message_ids=questions).SerializeToString()
        head, parts = unpack(self.of_app.receive(self.request, request))
        found = PullAppMessagesResponse.FromString(head)
        said = {}
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            reply = read(message.metadata.reply_to_message_id, tree, parts)
            said[reply.question] = reply.error or str(reply.message.content["text"]["text"])
        return said

    def _message(self, text: str, source: int, to: int, question: str, ttl: float) -> Message:
        about = Metadata(
            run_id=self.run,
            message_id="",
            src_node_id=source,
            dst_node_id=to,
            reply_to_message_id=question,
            group_id="",
            created_at=time.time(),
            ttl=ttl,
            message_type="train",
        )
        message = make_message(about, RecordDict({"text": ConfigRecord({"text": text})}))
        message.metadata.__dict__["_message_id"] = message.object_id
        return message


@pytest.fixture(scope="module")
def factory(tmp_path_factory) -> Iterator[LinkStateFactory]:
    database = str(tmp_path_factory.mktemp("flower") / "state.db")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(vars(sql_mixin), "SQLITE_PRAGMAS", vars(sql_mixin)["SQLITE_PRAGMAS"])  # undone later
        wait_for_database()
        yield LinkStateFactory(database, NoOpFederationManager(), ObjectStoreFactory(database))


@pytest.fixture
def world(factory, monkeypatch) -> World:
    return World(factory, monkeypatch)


def test_a_message_and_its_answer(world):
    message = world.send("first")
    assert world.receive(message) == {}
    assert world.take("") == message
    world.give(message)
    assert world.receive(message) == {message: "answer"}
    assert world.mailbox.size == 0


def test_a_message_whose_answer_was_lost_is_given_again(world):
    message = world.send("first")
    assert world.take("") == message  # the connection is reset: the node has nothing
    assert world.take("") == message
    assert world.take(message) == ""
    later = world.send("second")
    assert world.take(message) == later  # asked without an answer in between, as a node does that declines
    assert world.take(message) == later


def test_an_answered_message_is_not_given_again_to_a_node_that_was_restarted(world):
    message = world.send("first")
    assert world.take("") == message
    world.give(message)
    assert world.take("") == ""
    later = world.send("second")
    assert world.take("") == later


def test_a_message_counts_once_however_often_it_is_answered(world):
    message = world.send("first")
    assert world.take("") == message
    world.give(message)
    world.give(message)
    assert world.receive(message) == {message: "answer"}
    with pytest.raises(HTTPException) as refused:  # Flower does not know the question either
        world.give(message)
    assert refused.value.status_code == 409


def test_nobody_answers_for_another(world):
    message, other = world.send("first"), world.register()
    with pytest.raises(ValueError, match="somebody else's"):
        world.give(message, node=other, source=world.node)
    with pytest.raises(HTTPException):
        world.give(message, node=other)
    assert world.receive(message) == {}


def test_an_answer_without_all_its_parts(world):
    message = world.send("first")
    with pytest.raises(ValueError, match="without all its parts"):
        world.give(message, lacking=True)


def test_a_message_of_another_run(world, monkeypatch):
    monkeypatch.setattr(express, "authenticate_task", lambda *_: SimpleNamespace(run_id=world.run + 1))
    with pytest.raises(ValueError, match="another run"):
        world.send("first")


def test_a_node_that_is_gone(world):
    message = world.send("first")
    assert world.state.deactivate_node(world.node)
    assert list(world.receive(message)) == [message]
    assert world.mailbox.size == 0


def test_a_server_that_was_restarted_says_that_the_message_is_lost(world):
    message = world.send("first")
    assert world.take("") == message
    world.start()
    assert list(world.receive(message)) == [message]
    with pytest.raises(HTTPException):
        world.give(message)


def test_after_the_end_of_a_run_its_messages_are_not_given(world):
    message = world.send("first")
    assert world.state.finish_task(world.task, SubStatus.COMPLETED, "")
    assert world.take("") == ""
    assert world.mailbox.size == 0
    assert list(world.receive(message)) == [message]


def test_an_old_message_is_not_given(world):
    world.send("first", ttl=-1.0)
    assert world.take("") == ""
    world.send("second")
    assert world.take("") != ""


def test_nothing_is_kept_for_a_node_that_never_comes_back(world):
    first, second = world.send("first"), world.send("second")
    assert world.take("") == first
    world.mailbox.withdraw([first, second])
    assert (world.mailbox._waiting, world.mailbox._given, world.mailbox.size) == ({}, {}, 0)


def test_a_question_is_a_heartbeat(world, monkeypatch):
    beaten = []
    monkeypatch.setattr(
        type(world.state), "acknowledge_node_heartbeat", lambda _, *about: beaten.append(about)
    )
    world.take("")
    world.take("")
    assert beaten == [(world.node, 30)]


def test_a_message_that_is_sent_again_counts_once(world):
    """The app does so if it got no answer to its request."""
    message = world.send("first")
    question = world.mailbox._letters[message].question
    assert world.take("") == message
    world.give(message)
    size = world.mailbox.size
    assert world.mailbox.post(world.run, [question]) == [message]
    assert world.mailbox.size == size
    assert world.receive(message) == {message: "answer"}


def test_messages_are_kept_all_or_none(world):
    questions = [world.mailbox._letters[world.send(text)].question for text in ("first", "second")]
    small = Mailbox(most=sum(each.size for each in questions) - 1)
    with pytest.raises(FullError):
        small.post(world.run, questions)
    assert (small.size, small.next(world.node, [])) == (0, None)


def test_memory_is_bounded(world):
    world.start(most=2000)
    world.send("x" * 100)
    with pytest.raises(FullError):
        world.send("x" * 2000)


def test_what_flower_has_from_before_is_asked_for_once(world, monkeypatch):
    asked = PullMessagesRequest(node=Node(node_id=world.node)).SerializeToString()
    assert world.of_nodes.take(world.request, asked) == b""
    monkeypatch.setattr(type(world.state), "num_message_ins", lambda _: 1)
    world.start()
    with pytest.raises(HTTPException) as refused:
        world.of_nodes.take(world.request, asked)
    assert refused.value.status_code == 409
    assert world.of_nodes.take(world.request, asked) == b""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OperationalError("UPDATE", {}, Exception("database is locked")), 503),
        (FullError(), 503),
        (KeyError("x"), 500),
    ],
)
def test_what_cannot_be_done_now(error, status):
    def fails(request: Any, body: bytes) -> bytes:
        raise error

    assert express.answered(fails, SimpleNamespace(), b"").status_code == status  # type: ignore[arg-type]


def test_a_request_waits_for_a_locked_database(world):
    assert world.state.query("PRAGMA busy_timeout") == [{"timeout": 20_000}]
