"""How a node joins, waits for the server and for messages, and what it tells."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from flwr.app import Message
from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import ConfirmMessageReceivedResponse, PullObjectResponse, PushObjectResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

from commands import environment
from solera.core.errors import DeployError
from solera.deploy.common import flower
from solera.deploy.common.address import Address
from solera.deploy.common.frames import TAKE, pack, unpack
from solera.deploy.common.messages import TYPES, from_content, to_content
from solera.deploy.common.protocol import Packet
from solera.deploy.node import line as lines
from solera.deploy.node.line import ConnectedError, Line, UnknownError
from solera.deploy.operate import reachability, serving, supernode
from solera.deploy.operate.processes import Process
from solera.deploy.operate.serving import Worker, reply_to

ADDRESS = Address("127.0.0.1", 1)
PACKET = Packet({"federation": "f"}, {"rows": np.arange(3, dtype="<i4")})


def sent(packet: Packet = PACKET, kind: str = "enrol") -> Message:
    """A message as a server's app makes it."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("_run_id", "_node_id", "_task_id"):
            patched.setattr(TaskIdentity, name, 1)
        message = Message(to_content(packet), 7, TYPES[kind])
    message.metadata.__dict__.update(_run_id=5, _src_node_id=1)
    message.metadata.__dict__["_message_id"] = message.object_id
    return message


class SuperLink:
    """Answers as a SuperLink does, with at most one message; `errors` come first."""

    guarded = False  # whether it knows of messages with all their parts

    def __init__(self, message: Message | None = None, errors: dict[str, list[Any]] | None = None) -> None:
        self.tree = None if message is None else get_object_tree(message)
        self.parts = {} if message is None else get_all_nested_objects(message)
        self.errors = errors or {}
        self.asked: list[str] = []
        self.taken: dict[str, bytes] = {}
        self.received: list[str] = []  # what the node says that it has

    def answer(self, path: str, request: Any, **_: Any) -> Any:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        if self.errors.get(name):
            error = self.errors[name].pop(0)
            raise error if isinstance(error, Exception) else refusal(error)
        match name:
            case "activate-node":
                return ActivateNodeResponse(node_id=7)
            case "pull-messages":
                found = PullMessagesResponse()
                if self.tree is not None:
                    found.messages_list.add().metadata.run_id = 5
                    found.message_object_trees.append(self.tree)
                    self.tree = None
                return found
            case "pull-object":
                content = self.parts[request.object_id].deflate()
                return PullObjectResponse(object_found=True, object_available=True, object_content=content)
            case "confirm-message-received":
                return ConfirmMessageReceivedResponse()
            case "push-messages":
                self.head = request.messages_list[0]
                tree = request.message_object_trees[0]
                wanted = [tree.object_id, *(child.object_id for child in tree.children)]
                return PushMessagesResponse(objects_to_push=wanted)
            case "push-object":
                self.taken[request.object_id] = request.object_content
                return PushObjectResponse(stored=True)
        raise AssertionError(name)

    def exchange(self, client: Any, path: str, body: bytes, message: Any = None) -> bytes:
        """What the guard answers."""
        if not self.guarded:
            raise refusal(404)
        if path == TAKE:
            self.received += message.message_ids
            found = self.answer("pull-messages", message)
            return pack(found, {name: part.deflate() for name, part in self.parts.items()})
        head, parts = unpack(body)
        self.taken = parts
        self.head = PushMessagesRequest.FromString(head).messages_list[0]
        return PushMessagesResponse().SerializeToString()


def refusal(status: int) -> httpx.HTTPStatusError:
    response = httpx.Response(status, text=flower.CONNECTED, request=httpx.Request("POST", "http://h"))
    return httpx.HTTPStatusError("refused", request=response.request, response=response)


@pytest.fixture
def joined(monkeypatch):
    """Makes a line to a SuperLink."""
    monkeypatch.setattr(lines, "_RETRY", 0.001)
    monkeypatch.setattr(lines, "_FIRST", 0.001)

    def make(link: SuperLink) -> Line:
        line = Line(ADDRESS, None, trusted=False)
        line._registers = False
        monkeypatch.setattr(line._client, "_unary_unary", link.answer)
        monkeypatch.setattr(lines, "exchange", link.exchange)
        line.join()
        return line

    return make


def test_a_message_and_its_answer(joined):
    link = SuperLink(sent())
    line = joined(link)
    message = line.receive()
    assert line.node_id == 7
    assert from_content(message.content).fields == PACKET.fields
    assert from_content(message.content).arrays["rows"].tolist() == [0, 1, 2]
    reply = reply_to(message, lambda kind, packet: Packet({"kind": kind}))
    line.send(reply, 0.1)
    assert link.head.metadata.reply_to_message_id == message.metadata.message_id
    assert len(link.taken) == 2  # the parts that it asked for, and no more
    assert line.receive() is None
    assert link.asked.count("confirm-message-received") == 1


def test_a_message_with_all_its_parts(joined):
    """A guarded server gives and takes them in one request each."""
    link = SuperLink(sent())
    link.guarded = True
    line = joined(link)
    message = line.receive()
    assert from_content(message.content).fields == PACKET.fields
    line.send(reply_to(message, lambda kind, packet: Packet({"kind": kind})), 0.1)
    assert link.asked == ["activate-node", "pull-messages"]
    assert link.head.metadata.reply_to_message_id == message.metadata.message_id
    assert len(link.taken) == 3


def test_a_node_tells_what_it_has_received_and_takes_it_once(joined):
    link = SuperLink(sent())
    link.guarded = True
    line, tree = joined(link), link.tree
    assert line.receive() is not None
    link.tree = tree  # the server gives it once more
    assert line.receive() is None
    assert link.received == ["", tree.object_id]


def test_a_server_that_is_gone_for_a_while(joined):
    errors: dict[str, list[Any]] = {
        "pull-messages": [httpx.ConnectError("refused"), 503, httpx.ReadTimeout("slow")]
    }
    link = SuperLink(sent(), errors)
    assert joined(link).receive() is not None
    assert link.asked.count("pull-messages") == 4


def test_a_server_that_has_forgotten_the_node(joined):
    """Its database is new, and it gives the node another number: the node joins again."""
    link = SuperLink(sent(), {"pull-messages": [401]})
    assert joined(link).receive() is not None
    assert link.asked.count("activate-node") == 2


def test_a_message_whose_run_has_ended(joined):
    link = SuperLink(sent(), {"pull-object": [403] * 9})
    assert joined(link).receive() is None
    assert "confirm-message-received" not in link.asked
    link = SuperLink(sent(), {"push-messages": [403]})
    line = joined(link)
    message = line.receive()
    line.send(reply_to(message, lambda kind, packet: PACKET), 0.1)
    assert not link.taken


def test_a_node_that_is_not_let_in(joined, monkeypatch):
    with pytest.raises(ConnectedError):
        joined(SuperLink(errors={"activate-node": [412]}))
    monkeypatch.setattr(flower, "CONNECTED", "no such key")
    with pytest.raises(UnknownError):
        joined(SuperLink(errors={"activate-node": [412]}))


def test_the_words_of_an_error_stay_on_the_node():
    reply = reply_to(sent(), lambda kind, packet: None)
    assert reply.error.reason == "the node could not answer; its log says why"
    assert not reply.has_content()


def test_the_process_that_answers(tmp_path, monkeypatch):
    """It is there while there is work; an error, or its end, is an answer that could not be made."""
    paths = [environment()["PYTHONPATH"], str(Path(__file__).parent)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    worker = Worker(tmp_path, "misbehaving:failing_answers", idle=0.2)
    try:
        first = worker.answer("enrol", PACKET)
        assert first.arrays["rows"].tolist() == [0, 1, 2]
        worker.rest()
        assert worker.answer("fail", PACKET) is None
        assert "/home/anna" in worker.log.read_text()
        assert worker.answer("enrol", PACKET).fields["pid"] == first.fields["pid"]
        assert worker.answer("end", PACKET) is None
        again = worker.answer("enrol", PACKET).fields["pid"]
        assert again != first.fields["pid"]
        time.sleep(0.3)
        worker.rest()
        with pytest.raises(ProcessLookupError):
            os.kill(again, 0)
    finally:
        worker.end()


def test_waiting_for_a_server_that_is_not_there_yet(monkeypatch):
    monkeypatch.setattr(serving, "_LOOK", 0.01)
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = Address("127.0.0.1", taken.getsockname()[1])
        waiting = threading.Thread(target=serving.wait_for_server, args=(address, said.append), daemon=True)
        waiting.start()
        time.sleep(0.2)
        assert waiting.is_alive()
        monkeypatch.setattr(reachability, "check", lambda address: None)
        waiting.join(5)
        assert not waiting.is_alive()
    assert len(said) == 1
    assert "no server answers" in said[0]


def test_a_wrong_server_ends_the_wait(monkeypatch):
    def check(address: Address) -> None:
        raise DeployError("a certificate that was not issued by ca.pem")

    monkeypatch.setattr(reachability, "check", check)
    with pytest.raises(DeployError, match="certificate"):
        serving.wait_for_server(ADDRESS, print)


def process(said: str = "", is_running: bool = True) -> Any:
    return SimpleNamespace(said=lambda: said, is_running=is_running, log=Path("node.log"))


def test_a_node_that_takes_too_long_or_has_ended(monkeypatch):
    supernode._wait(process("node 7 takes part"), ADDRESS)
    monkeypatch.setattr(supernode, "_JOIN", 0.1)
    with pytest.raises(DeployError, match=r"has not joined the server at .* within 0 s"):
        supernode._wait(process(), ADDRESS)
    ended = "…\n" + json.dumps({"error": "the server does not know the key", "next": "register it"})
    with pytest.raises(DeployError, match="does not know the key") as error:
        supernode._wait(process(ended, is_running=False), ADDRESS)
    assert error.value.hint == "register it"
    with pytest.raises(DeployError, match="the node has stopped"):
        supernode._wait(process("?", is_running=False), ADDRESS)


def test_what_a_node_loads(tmp_path):
    """What talks to the server is there all the time, so it has neither torch nor Flower's server."""
    code = "import sys, solera.deploy.operate.serving; print(*sorted(sys.modules))"
    command = ["python", "-c", code]
    loaded = Process(command, environment(), tmp_path / "log")
    loaded._popen.wait(60)
    names = set(loaded.said().split())
    assert "flwr" in names
    assert not {"torch", "uvicorn", "sqlalchemy", "polars", "ray"} & names
