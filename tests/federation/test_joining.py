"""How a node joins, waits for the server and for tasks, and what it tells."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import stamina

from commands import environment
from solera.core.errors import DeployError
from solera.federation.common.address import Address
from solera.federation.common.packets import from_bytes, to_bytes
from solera.federation.common.protocol import Packet
from solera.federation.node.line import ConnectedError, Line, UnknownError
from solera.federation.operate import node_process, reachability
from solera.federation.operate.node_process import FAILED, Worker, answering
from solera.federation.operate.processes import Process
from solera.federation.web.wire import PACKET, pack_task

ADDRESS = Address("127.0.0.1", 1)
SENT = Packet({"federation": "f"}, {"rows": np.arange(3, dtype="<i4")})
SHARED = Packet({}, {"shared/items": np.ones(4, dtype="<f4")})
TASK = {"task": "t", "kind": "enrol", "round": "round-1", "blob": ""}
FULL = Packet(SENT.fields, SENT.arrays | SHARED.arrays)


@pytest.fixture(autouse=True)
def impatient():
    """Nobody waits between two attempts."""
    with stamina.set_testing(True, attempts=20, cap=True):
        yield


def refusal(status: int, **more: Any) -> httpx.Response:
    return httpx.Response(status, json={"error": "no", "next": "do this", "now": time.time(), **more})


def given(head: dict[str, str] = TASK, packet: Packet = SENT) -> httpx.Response:
    return httpx.Response(200, content=pack_task(head, to_bytes(packet)), headers={"content-type": PACKET})


def nothing() -> httpx.Response:
    return httpx.Response(200, json={"again": 0})


class Server:
    """Answers in the given order, and then that there is nothing."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.left, self.asked = list(answers), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.left.pop(0) if self.left else nothing()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def paths(self) -> list[str]:
        return [request.url.path for request in self.asked]


def line_to(server: Server) -> Line:
    transport = httpx.MockTransport(server)
    return Line(ADDRESS, None, client=httpx.Client(base_url=ADDRESS.url, transport=transport))


def test_a_task_and_its_answer():
    server = Server(given(), refusal(410))
    line = line_to(server)
    task = line.receive()
    assert task is not None
    assert (task.kind, task.round, task.packet.fields) == ("enrol", "round-1", SENT.fields)
    assert task.packet.arrays["rows"].tolist() == [0, 1, 2]
    line.send(task, Packet({"said": "yes"}))  # it has expired meanwhile: the next one is asked for
    assert server.paths == ["/v1/check-in", "/v1/answer/t"]
    assert from_bytes(server.asked[1].content).fields == {"said": "yes"}
    assert line.receive() is None


def test_what_many_are_sent_is_fetched_once():
    shared = httpx.Response(200, content=to_bytes(SHARED))
    named = {**TASK, "blob": "b" * 64}
    server = Server(given(named), shared, given(named), given({**TASK, "blob": "c" * 64}), refusal(404))
    line = line_to(server)
    for _ in range(2):
        task = line.receive()
        assert task is not None
        assert task.packet.arrays.keys() == FULL.arrays.keys()
    assert line.receive() is None  # its file is gone, and so is the task
    assert [path[-64:] for path in server.paths if "blob" in path] == ["b" * 64, "c" * 64]


def test_a_server_that_is_gone_for_a_while():
    """It is asked again, for a task as for an answer."""
    away: list[httpx.Response | Exception] = [
        httpx.ConnectError("refused"),
        refusal(503),
        httpx.ReadTimeout("slow"),
        refusal(429),
    ]
    server = Server(*away, given(), *away, refusal(408))
    line = line_to(server)
    task = line.receive()
    assert task is not None
    line.send(task, SENT)
    assert len(server.asked) == 5 + 6
    nonces = [request.headers["signature-input"].partition("nonce=")[2] for request in server.asked]
    assert len(set(nonces)) == len(nonces), "a request that was sent again is signed anew"


def test_a_node_that_is_not_let_in():
    with pytest.raises(UnknownError, match="no"):
        line_to(Server(refusal(403))).join()
    with pytest.raises(ConnectedError):
        line_to(Server(refusal(409))).join()
    with pytest.raises(DeployError):
        line_to(Server(refusal(401), refusal(401), refusal(401), refusal(401))).join()


@pytest.mark.parametrize(
    "content", [b"", b"x", pack_task({}, b""), pack_task({**TASK, "blob": ""}, b"\x05\0\0\0{}")]
)
def test_a_server_that_speaks_another_language(content):
    """The node ends and says so: what it cannot read now, it cannot read later."""
    answer = httpx.Response(200, content=content, headers={"content-type": PACKET})
    with pytest.raises(DeployError, match="cannot be read"):
        next(answering(line_to(Server(answer)), lambda kind, packet: SENT))


def test_words_of_a_server_cannot_command_a_terminal():
    said = {"error": "\x1b]0;owned\x07no", "next": "\x1b[8mhidden", "now": time.time()}
    with pytest.raises(UnknownError) as error:
        line_to(Server(httpx.Response(403, json=said))).join()
    assert "\x1b" not in error.value.message + (error.value.hint or "")


def test_the_words_of_an_error_stay_on_the_node():
    server = Server(given())
    next(answering(line_to(server), lambda kind, packet: None))
    answer = from_bytes(server.asked[1].content)
    assert (answer.fields["declined"], answer.arrays) == (FAILED, {})


def test_the_process_that_answers(tmp_path, monkeypatch):
    """It is there while there is work; an error, or its end, is an answer that could not be made."""
    paths = [environment()["PYTHONPATH"], str(Path(__file__).parent)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    worker = Worker(tmp_path, "misbehaving:failing_answers", idle=0.2)
    try:
        first = worker.answer("enrol", SENT)
        assert first is not None
        assert first.arrays["rows"].tolist() == [0, 1, 2]
        worker.rest()
        assert worker.answer("fail", SENT) is None
        assert "/home/anna" in worker.log.read_text()
        assert worker.answer("enrol", SENT).fields["pid"] == first.fields["pid"]
        assert worker.answer("end", SENT) is None
        again = worker.answer("enrol", SENT).fields["pid"]
        assert again != first.fields["pid"]
        time.sleep(0.3)
        worker.rest()
        with pytest.raises(ProcessLookupError):
            os.kill(again, 0)
    finally:
        worker.end()


def test_waiting_for_a_server_that_is_not_there_yet(monkeypatch):
    monkeypatch.setattr(node_process, "_LOOK", 0.01)
    said: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = Address("127.0.0.1", taken.getsockname()[1])
        wait: Callable[..., None] = node_process.wait_for_server
        waiting = threading.Thread(target=wait, args=(address, said.append), daemon=True)
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
        node_process.wait_for_server(ADDRESS, print)


def process(said: str = "", is_running: bool = True) -> Any:
    return SimpleNamespace(said=lambda: said, is_running=is_running, log=Path("node.log"))


def test_a_node_that_takes_too_long_or_has_ended(monkeypatch):
    node_process._wait(process("node 7 takes part"), ADDRESS)
    monkeypatch.setattr(node_process, "_JOIN", 0.1)
    with pytest.raises(DeployError, match=r"has not joined the server at .* within 0 s"):
        node_process._wait(process(), ADDRESS)
    ended = "…\n" + json.dumps({"error": "the server does not know the key", "next": "register it"})
    with pytest.raises(DeployError, match="does not know the key") as error:
        node_process._wait(process(ended, is_running=False), ADDRESS)
    assert error.value.hint == "register it"
    with pytest.raises(DeployError, match="the node has stopped"):
        node_process._wait(process("?", is_running=False), ADDRESS)


def test_what_a_node_loads(tmp_path):
    """What talks to the server is there all the time, so it has neither torch nor a server's libraries."""
    code = "import sys, solera.federation.operate.node_process; print(*sorted(sys.modules))"
    loaded = Process([sys.executable, "-c", code], environment(), tmp_path / "log")
    loaded._popen.wait(60)
    names = set(loaded.said().split())
    assert "httpx" in names
    assert not {"torch", "uvicorn", "sqlalchemy", "alembic", "polars", "flwr", "ray"} & names
