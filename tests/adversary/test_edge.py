"""Strangers and local programs before a real server: what they can take, and what they can order."""

from __future__ import annotations

import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from attack import attack
from served import open_to_others, running
from strangers import (
    ACQUIRE,
    ATTACKER,
    CUT_OFF,
    ELSEWHERE,
    LIST,
    MB,
    PUSH,
    REGISTER,
    ask,
    command_of,
    connect,
    head,
    is_open,
    listening,
    peak,
    push,
    status_of,
    zeros,
)

from commands import below
from solera.core.errors import DeployError
from solera.deploy.common import flower
from solera.deploy.common.credential import read_token
from solera.deploy.common.flower import Address
from solera.deploy.operate import superlink
from solera.deploy.operate.control import control
from solera.deploy.operate.processes import free_port

GIGABYTE = 1000 * MB


@attack(
    "stranger",
    "One request without a credential does not fill the server's memory.",
    before="a request of 1 GB took the server from 166 MB to 2165 MB",
)
def test_a_large_request(server, reached):
    before = peak(server.pid)
    assert push(server.address, zeros(GIGABYTE), content_length=GIGABYTE) in {413, CUT_OFF}
    grown = peak(server.pid) - before
    assert grown < 50
    reached(f"refused; {grown:.0f} MB")


@attack(
    "stranger",
    "A request that does not say how large it is does not fill the server's memory either.",
    before="1 GB in chunks took the server from 159 MB to 2159 MB",
)
def test_a_large_request_in_chunks(server, reached):
    before = peak(server.pid)
    pieces = zeros(GIGABYTE, chunked=True)
    assert push(server.address, pieces, transfer_encoding="chunked") in {413, CUT_OFF}
    grown = peak(server.pid) - before
    assert grown < 50
    reached(f"refused; {grown:.0f} MB")


@attack(
    "stranger",
    "Headers without end do not fill the server's memory.",
    before="300 MB of headers took the server from 159 MB to 466 MB",
)
def test_large_headers(server, reached):
    before = peak(server.pid)
    headers = {f"x_{number}": "a" * MB for number in range(300)}
    assert push(server.address, (), **headers) in {400, CUT_OFF}
    grown = peak(server.pid) - before
    assert grown < 50
    reached(f"refused; {grown:.0f} MB")


@attack(
    "stranger",
    "Connections that say nothing, before TLS or after, and bodies that trickle are cut off.",
    before="all 200 slow bodies and all 100 silent connections were there after 40 s",
)
def test_slow_bodies_and_silence(server, reached):
    slow = [connect(server.address, ATTACKER) for _ in range(100)]
    silent: list[socket.socket] = [connect(server.address, ATTACKER) for _ in range(50)]
    silent += [socket.create_connection((server.address.host, server.address.port)) for _ in range(20)]
    for line in slow:
        line.sendall(head(PUSH, content_length=60_000))
    assert server.serves()
    until = time.monotonic() + 30
    while (left := [*filter(is_open, [*slow, *silent])]) and time.monotonic() < until:
        for line in slow:
            with suppress(OSError):
                line.sendall(b"x")
        time.sleep(0.5)
    seconds = 30 - (until - time.monotonic())
    assert not left
    reached(f"cut off after {seconds:.0f} s")


@attack(
    "stranger",
    "One address cannot take all connections.",
    before="1200 of 1200 connections were taken and kept",
)
def test_many_connections(server, reached):
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(server.address, ATTACKER)) for _ in range(300)]
        kept = sum(map(is_open, lines))
        assert server.serves()
    assert kept <= 256
    reached(f"{kept} of 300 are kept")


@attack(
    "stranger",
    "One address cannot send requests without end, while others are served.",
    before="4000 of 4000 were answered",
)
def test_many_requests(reached):
    port, answers = free_port(), b""
    program = [sys.executable, Path(__file__).with_name("guarded_app.py"), port]
    with running(*program):
        wait_for_port(port)
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), 30) as line, suppress(ConnectionError):
            line.sendall(head("/health", "GET", x_forwarded_for=ELSEWHERE) * 4000)
            while more := line.recv(1 << 16):
                answers += more
        seconds = time.monotonic() - began
        with socket.create_connection(("127.0.0.1", port), 30) as line:
            line.sendall(head("/health", "GET"))
            assert status_of(line) == 200
    answered = answers.count(b"HTTP/1.1 200")
    assert 2000 <= answered <= 2000 + 100 * seconds + 1
    assert answers.count(b"HTTP/1.1 503") == 1  # and then the connection was closed
    reached(f"{answered} of 4000 were answered")


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise TimeoutError


@attack(
    "local program",
    "Orders need the token that only the server's user can read.",
    before="ca.pem was enough to list nodes and to register a key",
)
def test_orders_without_the_token(server, reached):
    for path in (LIST, REGISTER, "/v1/control/start-run", "/openapi.json"):
        assert ask(server.address, path) == 401
    reached("refused")


@attack("local program", "A token that is not the server's opens nothing.", before="no token was asked for")
def test_orders_with_a_wrong_token(server, reached):
    token = read_token(flower.home_of(server.folder))
    for wrong in ("", "0" * 64, token[:-1], f"{token}0", token.upper()):
        assert ask(server.address, LIST, authorization=f"Bearer {wrong}") == 401
    assert ask(server.address, LIST, authorization=f"Bearer {token}") == 200
    reached("refused")


@attack(
    "stranger",
    "No token helps on another machine, also not through a proxy on the server's own.",
    before="refused",
)
def test_orders_from_another_machine(server, reached):
    token = read_token(flower.home_of(server.folder))
    for path in (LIST, ACQUIRE):
        for claimed in (ELSEWHERE, f"127.0.0.1, {ELSEWHERE}", "nonsense"):
            claim = f"Bearer {token}"
            assert ask(server.address, path, authorization=claim, x_forwarded_for=claimed) == 403
    reached("refused")


@attack(
    "local program",
    "No other program can take a run from the server's own.",
    before="a run was handed to whoever asked for it",
)
def test_taking_a_run(server, reached):
    assert ask(server.address, ACQUIRE) == 401
    reached("refused")


@attack(
    "local program",
    "Command lines, which every user can read, hold nothing that opens the server.",
    before="the token of the server's app was on its command line, and opened what nodes send",
)
def test_reading_command_lines(server, reached):
    home = flower.home_of(server.folder)
    app = flower.write_app(home, server_app="waiting_app:server")
    with control(server.address, read_token(home)) as asked:
        number = asked.start(app, {"folder": str(server.folder)})
        until = time.monotonic() + 60
        while not (apps := [pid for pid in below(server.pid) if "--parent-pid" in command_of(pid)]):
            assert time.monotonic() < until
            time.sleep(0.1)
        words = {word for pid in [*apps, *below(server.pid)] for word in command_of(pid)}
        (token,) = [path.read_text() for path in home.glob("task-*.token")]
        nodes = "/v1/runtime/get-nodes"
        assert ask(server.address, nodes, flwr_task_token=token) != 401
        for word in words:
            assert ask(server.address, nodes, flwr_task_token=word) in {400, 401}
        asked.stop(number)
    reached("nothing")


@attack(
    "stranger",
    "The server listens on one port, the guarded one.",
    before="refused",
)
def test_other_ports(server, reached):
    everything = [server.pid, *below(server.pid)]
    assert {port for pid in everything for port in listening(pid)} == {server.address.port}
    reached("one port")


@attack(
    "local program",
    "Files of a server are for its user alone, whatever the umask.",
    before="folders 0755; database and logs 0644",
)
def test_files_of_a_server(server, reached):
    found = [server.folder, *server.folder.rglob("*")]
    assert {"state.db", "superlink.log", "config.toml", "control.token"} <= {path.name for path in found}
    assert open_to_others(found) == []
    reached("0700 and 0600")


WITHOUT_HOOK = """
import runpy, flwr.superlink.main
del flwr.superlink.main.create_app
runpy.run_module("solera.deploy.edge.guard", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(([sys.executable, "-c", WITHOUT_HOOK], "cannot be guarded"), id="gone"),
        pytest.param(
            (["flower-superlink"], "did not ask an operator for a credential"),
            id="ignored",
            marks=pytest.mark.slow,
        ),
    ],
)
@attack(
    "local program",
    "A Flower that cannot be guarded is not served.",
    before="a Flower without the hook was served to every machine, control and all",
)
def test_a_guard_that_is_left_out(program, server, tmp_path, monkeypatch, reached):
    usual, keys, (command, message) = flower.superlink, server.keys, program

    def changed(home: Path, address: Address, given: Path | None) -> list[str]:
        line = usual(home, address, given)
        return command + line[line.index("solera.deploy.edge.guard") + 1 :]

    monkeypatch.setattr(flower, "superlink", changed)
    address = Address("127.0.0.1", free_port(), keys / "ca.pem")
    with (
        pytest.raises(DeployError, match=message),
        superlink.running(tmp_path / "films", address, keys),
    ):
        pass
    with pytest.raises(ConnectionRefusedError):
        connect(address)
    reached("not started, or ended at once")
