"""How long a node waits for the server and for messages, and what it tells."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.message_pb2 import Context as ProtoContext
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.proto.runtime_pb2 import (
    AcquireTaskResponse,
    PullAppMessagesResponse,
    PullTaskInputResponse,
    PushTaskOutputResponse,
    SendTaskHeartbeatResponse,
)
from flwr.proto.task_pb2 import Task
from flwr.supercore.task_identity import TaskIdentity

from solera.core.errors import DeployError
from solera.deploy.common.flower import Address
from solera.deploy.node import worker
from solera.deploy.operate import reachability, supernode
from solera.deploy.operate.processes import Process

ADDRESS = Address("127.0.0.1", 1)


def process(said: str = "", is_running: bool = True) -> Any:
    return SimpleNamespace(said=lambda: said, is_running=is_running, log=Path("supernode.log"))


@pytest.fixture
def asked(monkeypatch) -> list[Address]:
    """Every look whether the server answers, a moment after the other."""
    looks: list[Address] = []
    monkeypatch.setattr(supernode, "_ASK", 0.01)
    monkeypatch.setattr(reachability, "check", looks.append)
    return looks


def test_a_node_that_is_let_in(asked):
    supernode._wait(process("SuperNode ID: 7"), ADDRESS, None)
    assert asked == []


def test_a_node_waits_as_long_as_the_server_answers(asked, monkeypatch):
    monkeypatch.setattr(supernode, "_JOIN", 1.0)
    with pytest.raises(DeployError, match=r"has not joined the server at .* within 1 s"):
        supernode._wait(process(), ADDRESS, None)
    assert len(asked) > 1


def test_a_server_that_is_gone_ends_the_wait(monkeypatch, asked):
    def silent(address: Address) -> None:
        asked.append(address)
        if len(asked) != 2:
            raise reachability.SilenceError(f"no server answers at {address}")

    monkeypatch.setattr(reachability, "check", silent)
    with pytest.raises(reachability.SilenceError):
        supernode._wait(process(), ADDRESS, None)
    assert len(asked) == 5  # silent, there, and silent three times in a row


def test_a_node_that_has_ended_says_why(asked):
    key = Path("node-1")
    unknown = "[code: 2004] Failed to activate SuperNode."
    for said, message in (
        (unknown, "does not know the key node-1"),
        (f"{unknown}\na node with this key is connected", "the key node-1 is already connected"),
        ("could not parse the private key", "node-1 is not a node's secret key"),
        ("?", "the node has stopped"),
    ):
        with pytest.raises(DeployError, match=message):
            supernode._wait(process(said, is_running=False), ADDRESS, key)


def test_the_words_of_an_error_stay_on_the_node(monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    message = Message(RecordDict(), dst_node_id=1, message_type="query.enrol")
    pushed: list[Any] = []
    ended: list[dict[str, Any]] = []
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    monkeypatch.setattr(worker, "pull_task_input", lambda client: (message, context, None, None))
    monkeypatch.setattr(worker, "push_message", lambda client, reply, context: pushed.append(reply))
    monkeypatch.setattr(worker, "push_task_output", lambda **given: ended.append(given))
    monkeypatch.setattr(
        worker, "HeartbeatSender", lambda beat: SimpleNamespace(start=lambda: None, stop=lambda: None)
    )
    app = ClientApp()

    @app.query("enrol")
    def fail(message: Message, context: Context) -> Message:
        raise ValueError("/home/anna/films is not a device")

    worker.answer("127.0.0.1:1", "token", app)
    (reply,) = pushed
    assert reply.error.reason == ended[0]["details"] == "the node could not answer; its log says why"


class Runtime:
    """A SuperNode that has dropped a message of which only a part has come, and has another task."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, path: str, **_: Any) -> Any:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        task = Task(task_id=2)
        context = ProtoContext(run_id=1, node_id=1)
        return {
            "acquire-task": AcquireTaskResponse(task=task, token="next"),
            "pull-task-input": PullTaskInputResponse(context=context, task_id=1),
            "pull-messages": PullAppMessagesResponse(
                messages_list=[ProtoMessage()], message_object_trees=[ObjectTree(object_id="a" * 64)]
            ),
            "pull-object": PullObjectResponse(object_found=True, object_available=False),
            "push-task-output": PushTaskOutputResponse(),
            "send-task-heartbeat": SendTaskHeartbeatResponse(success=True),
        }[name]


def test_a_message_of_which_the_rest_never_comes(monkeypatch):
    """The worker goes on with the next task, for which the node would wait otherwise."""
    runtime = Runtime()
    monkeypatch.setattr(worker.Line, "_unary_unary", staticmethod(runtime.answer))
    tasks = worker.Tasks(worker._line("127.0.0.1:1"))
    worker.answer("127.0.0.1:1", "token", ClientApp(), tasks)
    assert runtime.asked[-1] == "push-task-output"
    assert tasks.take() == "next"
    assert runtime.asked.count("acquire-task") == 1


def test_a_node_whose_supernode_has_dropped_a_message(tmp_path):
    """Its answers would be those to the messages before, so it is started anew; otherwise it goes on."""
    words = "Run ID 7 is not in `RUNNING` status. Ignoring message 89c3ec."

    def program(text: str, seconds: float) -> Process:
        line = f"echo '{text}'; exec sleep {seconds}"
        return Process(["sh", "-c", line], dict(os.environ), tmp_path / f"{seconds}.log")

    worker_, silent, dropping = program("", 2), program("Received successfully", 61), program(words, 62)
    try:
        supernode.Running(dropping, worker_).watch(None)
        with pytest.raises(DeployError, match="the node's worker process has stopped"):
            supernode.Running(silent, worker_).watch(None)
    finally:
        for each in (worker_, silent, dropping):
            each.stop()
