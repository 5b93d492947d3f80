"""How a node joins, waits for the server and for tasks, and what it tells."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stamina

from commands import environment
from solera.core.errors import DeployError
from solera.federation.common import connection
from solera.federation.common.address import Address
from solera.federation.common.connection import FAILURES, Answer, Connection
from solera.federation.common.packets import from_bytes, to_bytes
from solera.federation.common.protocol import Packet
from solera.federation.common.wire import PACKET, pack_task
from solera.federation.node.line import ConnectedError, Line, Task, UnknownError
from solera.federation.node.worker import FAILED, received
from solera.federation.operate import node_process
from solera.federation.operate.node_process import WORKER_APP, Worker, answering
from solera.federation.operate.processes import Process

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


def said(content: Any, status: int = 200) -> Answer:
    return Answer(status, "application/json", json.dumps(content).encode())


def refusal(status: int, **more: Any) -> Answer:
    return said({"error": "no", "next": "do this", "now": time.time(), **more}, status)


def given(head: dict[str, str] = TASK, packet: Packet = SENT) -> Answer:
    return Answer(200, PACKET, pack_task(head, to_bytes(packet)))


class Server(Connection):
    """Answers in the given order, and then that there is nothing."""

    def __init__(self, *answers: Answer | Exception) -> None:
        super().__init__(ADDRESS)
        self.left, self.asked = list(answers), list[tuple[str, bytes, Mapping[str, str]]]()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        self.asked.append((path, body or b"", headers or {}))
        answer = self.left.pop(0) if self.left else said({"again": 0})
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]


def line_to(server: Server) -> Line:
    return Line(ADDRESS, None, connection=server)


def test_a_task_and_its_answer():
    server = Server(given(), refusal(410))
    line = line_to(server)
    task = line.receive()
    assert task is not None
    packet = received(task.body, task.shared)
    assert (task.kind, task.round, packet.fields) == ("enrol", "round-1", SENT.fields)
    assert packet.arrays["rows"].tolist() == [0, 1, 2]
    line.send(task, to_bytes(Packet({"said": "yes"})))  # it has expired meanwhile: the next one is asked for
    assert server.paths == ["/v1/check-in", "/v1/answer/t"]
    assert from_bytes(server.asked[1][1]).fields == {"said": "yes"}
    assert line.receive() is None


def test_what_many_are_sent_is_fetched_once():
    shared = Answer(200, PACKET, to_bytes(SHARED))
    named = {**TASK, "blob": "b" * 64}
    server = Server(given(named), shared, given(named), given({**TASK, "blob": "c" * 64}), refusal(404))
    line = line_to(server)
    for _ in range(2):
        task = line.receive()
        assert task is not None
        assert received(task.body, task.shared).arrays.keys() == FULL.arrays.keys()
    assert line.receive() is None  # its file is gone, and so is the task
    assert [path[-64:] for path in server.paths if "blob" in path] == ["b" * 64, "c" * 64]


def test_a_server_that_is_gone_for_a_while():
    """It is asked again, for a task as for an answer."""
    away: list[Answer | Exception] = [
        ConnectionRefusedError("refused"),
        refusal(503),
        TimeoutError("slow"),
        refusal(429),
    ]
    server = Server(*away, given(), *away, refusal(408))
    line = line_to(server)
    task = line.receive()
    assert task is not None
    line.send(task, to_bytes(SENT))
    assert len(server.asked) == 5 + 6
    nonces = [headers["signature-input"].partition("nonce=")[2] for _, _, headers in server.asked]
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
def test_a_server_that_speaks_another_language(content, tmp_path):
    """The node ends and says so: what it cannot read now, it cannot read later."""
    worker = Worker(tmp_path, WORKER_APP)
    try:
        with pytest.raises(DeployError, match="cannot be read"):
            next(answering(line_to(Server(Answer(200, PACKET, content))), worker.answer))
    finally:
        worker.end()


def test_words_of_a_server_cannot_command_a_terminal():
    words = {"error": "\x1b]0;owned\x07no", "next": "\x1b[8mhidden", "now": time.time()}
    with pytest.raises(UnknownError) as error:
        line_to(Server(said(words, 403))).join()
    assert "\x1b" not in error.value.message + (error.value.hint or "")


def test_the_process_that_answers(tmp_path, monkeypatch):
    """It is there while there is work; an error, or its end, is an answer that could not be made."""
    paths = [environment()["PYTHONPATH"], str(Path(__file__).parent)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    worker = Worker(tmp_path, "misbehaving:failing_answers", idle=0.2)

    def answered(kind: str) -> Packet:
        return from_bytes(worker.answer(Task("t", kind, "round-1", to_bytes(SENT), to_bytes(SHARED))))

    def is_failure(reply: Packet) -> bool:
        """The words of an error stay on the node."""
        return (reply.fields["declined"], reply.arrays) == (FAILED, {})

    try:
        first = answered("enrol")
        assert first.arrays.keys() == FULL.arrays.keys()
        worker.rest()
        assert is_failure(answered("fail"))
        assert "/home/anna" in worker.log.read_text()
        assert answered("enrol").fields["pid"] == first.fields["pid"]
        assert is_failure(answered("end"))
        again = answered("enrol").fields["pid"]
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
        monkeypatch.setattr(connection, "check", lambda address: None)
        waiting.join(5)
        assert not waiting.is_alive()
    assert len(said) == 1
    assert "no server answers" in said[0]


def test_a_wrong_server_ends_the_wait(monkeypatch):
    def check(address: Address) -> None:
        raise DeployError("a certificate that was not issued by ca.pem")

    monkeypatch.setattr(connection, "check", check)
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
    """What talks to the server is there all the time: it has what requests need, and nothing else."""
    code = "import sys, solera.federation.operate.node_process; print(*sorted(sys.modules))"
    loaded = Process([sys.executable, "-c", code], environment(), tmp_path / "log")
    loaded._popen.wait(60)
    names = set(loaded.said().split())
    assert "stamina" in names
    assert not {"torch", "numpy", "pydantic", "httpx", "rich", "uvicorn", "sqlalchemy", "polars"} & names


@pytest.mark.parametrize("module", ["cli.node", "federation.node.masked_round", "service.taking_part"])
def test_a_node_needs_no_library_of_a_servers(tmp_path, module):
    """The extra `node` is enough."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"]["server"]
    names = {re.split(r"[\[>]", each)[0].replace("-", "_") for each in wanted} - {"solera", "uvicorn"}
    assert "alembic" in names
    code = f"import sys; sys.modules |= dict.fromkeys({names}); import solera.{module}"
    loaded = Process([sys.executable, "-c", code], environment(), tmp_path / "log")
    assert loaded._popen.wait(60) == 0, loaded.said()


def test_a_connection_that_broke_is_made_again(monkeypatch):
    """By the next request at once: where the server has ended it, and where a signal ended the wait."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version, timeout = "HTTP/1.1", 0.2

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    def interrupted() -> None:
        raise KeyboardInterrupt

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = Connection(Address("127.0.0.1", server.server_port))
        assert line.ask("GET", "/").status == 200
        time.sleep(0.5)
        assert line.ask("GET", "/").status == 200
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(line._line, "getresponse", interrupted)
            line.ask("GET", "/")
        assert line.ask("GET", "/").status == 200
        line.close()
        server.shutdown()


def test_an_answer_without_end_is_no_answer(monkeypatch):
    """A server that never stops talking does not fill a device's memory."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                for _ in range(10_000 if self.path == "/endless" else 1):
                    self.wfile.write(bytes(1000))

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setattr(connection, "_LONGEST", 5000)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = Connection(Address("127.0.0.1", server.server_port))
        with pytest.raises(FAILURES, match="more than 5,000 bytes"):
            line.ask("GET", "/endless")
        assert len(line.ask("GET", "/").content) == 1000
        line.close()
        server.shutdown()
