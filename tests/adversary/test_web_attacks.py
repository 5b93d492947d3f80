"""Strangers, members and local programs before a real server: what they can read, answer, take and stop."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from attack import attack
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from engines import nginx
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from web import (
    ANSWER_BODY,
    ATTACKER,
    CUT_OFF,
    ELSEWHERE,
    MB,
    Caller,
    Web,
    connect,
    head,
    is_open,
    listening,
    open_to_others,
    peak,
    push,
    status_of,
    web,
    words_of,
    zeros,
)

from commands import below
from solera.core.errors import DeployError, RunError
from solera.device.policy import Agreement
from solera.federation.common.address import Address
from solera.federation.common.authority import make_keys
from solera.federation.common.connection import Answer, Connection
from solera.federation.common.invitation import Code
from solera.federation.common.wire import ADMIT, ANSWER, BLOB, CHECK_IN, LARGEST, PACKET, SMALL
from solera.federation.node import line as lines
from solera.federation.node.line import ConnectedError, Line, UnknownError
from solera.federation.operate import server as serving
from solera.federation.operate.inviting import invitation
from solera.federation.operate.processes import free_port
from solera.federation.web.signing import WINDOW
from solera.privacy.identity import new_identity, sign

GIGABYTE = 1000 * MB
INPUTS, MANY = 150, int(os.environ.get("SOLERA_INPUTS", "5000"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One for all tests of this file; each has nodes of its own."""
    with web(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of another federation."""
    folder = tmp_path_factory.mktemp("foreign")
    make_keys(folder, 1)
    return folder


@attack(
    "stranger",
    "A request that is not signed by a registered key, for this federation and for just this method, path"
    " and body, is refused.",
    before="only the time was signed: what was recorded opened every request",
)
def test_a_signature_is_for_one_request(server, foreign, reached):
    mine, stranger = server.caller(1), server.caller(1, foreign)
    server.send(mine)
    body, other = mine.body(), mine.body(wait=1)
    right = mine.headers(CHECK_IN, body)
    digest = mine.headers(CHECK_IN, other)["content-digest"]
    wrong = {
        "unsigned": {},
        "no digest": {name: value for name, value in right.items() if name != "content-digest"},
        "another body": mine.headers(CHECK_IN, other),
        "another body's digest": right | {"content-digest": digest},
        "another path": mine.headers(f"{ANSWER}x", body),
        "another method": mine.headers(CHECK_IN, body, method="GET"),
        "another federation": mine.headers(CHECK_IN, body, tag="open"),
        "another signature": right | {"signature": stranger.headers(CHECK_IN, body)["signature"]},
        "a later time": right
        | {"signature-input": right["signature-input"].replace("created=1", "created=2")},
        "two signatures": right
        | {"signature-input": f"{right['signature-input']}, {right['signature-input']}"},
        "a number no database holds": mine.headers(CHECK_IN, body, nonce=10**19),
        "covers less": right | {"signature-input": right["signature-input"].replace(' "content-digest"', "")},
    }
    for what, headers in wrong.items():
        assert mine.ask(CHECK_IN, body, headers).status_code == 401, what
    assert stranger.check_in().status_code == 403
    assert stranger.ask(f"{ANSWER}x", ANSWER_BODY).status_code == 403
    assert mine.task() is not None
    reached(f"{len(wrong) + 2} wrong requests refused, the right one answered")


@attack(
    "stranger",
    "A recorded request is worth nothing: a check-in counts once, and none is taken that is older than the"
    " last one.",
    before="headers of a node that were recorded let another program train in its name",
)
def test_a_check_in_is_replayed(server, reached):
    mine = server.caller(2)
    server.send(mine)
    body = mine.body()
    first, second = (mine.headers(CHECK_IN, body) for _ in range(2))
    assert mine.ask(CHECK_IN, body, second).headers["content-type"] == PACKET
    for recorded in (first, second):
        again = mine.ask(CHECK_IN, body, recorded)
        assert again.status_code == 401
        assert again.json()["nonce"] >= mine.nonce
    leave = mine.headers(CHECK_IN, leaving := mine.body(leaving=True))
    assert mine.ask(CHECK_IN, leaving, leave).status_code == 200
    assert mine.check_in().status_code == 200
    assert mine.ask(CHECK_IN, leaving, leave).status_code == 401  # nobody sends a device away by an old word
    assert mine.number in server.store.online()
    reached("refused")


@attack(
    "stranger",
    "An answer that is sent again, by whomever, counts once; another one in its place is refused.",
    before="refused",
)
def test_an_answer_is_replayed(server, reached):
    mine = server.caller(3)
    path = f"{ANSWER}{server.send(mine)}"
    recorded = mine.headers(path, ANSWER_BODY)
    assert [mine.ask(path, ANSWER_BODY, recorded).status_code for _ in range(2)] == [200, 200]
    assert mine.ask(path, ANSWER_BODY + b"\0\0\0\0").status_code == 409
    assert server.collected() == [(path.removeprefix(ANSWER), mine.number)]
    assert mine.ask(path, ANSWER_BODY, recorded).status_code == 200  # it was taken already
    assert server.collected() == []
    assert mine.task() is None
    reached("once each")


@attack(
    "lying node",
    "A member can neither read what another one is asked nor answer for it.",
    before="refused",
)
def test_a_member_answers_for_another(server, reached):
    mine, other = server.caller(4), server.caller(5)
    name = server.send(other)
    assert mine.task() is None
    for path in (name, "x" * 32, f"{name}%00", "%2e%2e%2f" + name):
        assert mine.ask(f"{ANSWER}{path}", ANSWER_BODY).status_code in {401, 404, 410}
    assert server.collected() == []
    assert other.task() == name
    assert other.ask(f"{ANSWER}{name}", ANSWER_BODY).status_code == 200
    assert server.collected() == [(name, other.number)]
    reached("refused")


@attack(
    "lying node",
    "A revoked member is turned away at once: it is asked nothing, answers nothing, and is let in by no new"
    " registration.",
    before="refused",
)
def test_a_revoked_key(server, reached):
    lost = server.caller(6)
    first, second = server.send(lost), server.send(lost)
    assert lost.ask(f"{ANSWER}{first}", ANSWER_BODY).status_code == 200
    public = server.keys / "nodes" / "node-6.pub"
    assert serving.revoke(server.folder, [public]) == [public]
    assert lost.check_in().status_code == 403
    assert lost.ask(f"{ANSWER}{second}", ANSWER_BODY).status_code == 403
    assert lost.number not in server.store.online()
    server.store.register(serving.named([public]))
    assert lost.check_in().status_code == 403
    server.collected()
    reached("refused")


def test_a_task_that_has_expired_is_neither_given_nor_answered(server):
    mine = server.caller(7)
    name = server.send(mine, seconds=0.0)
    kept = server.send(mine)
    assert mine.task() == kept
    assert mine.ask(f"{ANSWER}{name}", ANSWER_BODY).status_code == 410
    assert mine.ask(f"{ANSWER}{kept}", ANSWER_BODY).status_code == 200
    server.collected()


def test_a_device_that_comes_back_is_asked_what_was_asked_last(server):
    """It does no work, and spends nothing, for a round that is over; an answer on its way still counts."""
    mine = server.caller(7)
    former, last = server.send(mine), server.send(mine)
    assert mine.task() == last
    assert mine.ask(f"{ANSWER}{last}", ANSWER_BODY).status_code == 200
    assert mine.task() is None
    assert mine.ask(f"{ANSWER}{former}", ANSWER_BODY).status_code == 200
    assert sorted(server.collected()) == sorted([(former, mine.number), (last, mine.number)])


@attack(
    "crash",
    "A coordinator that was replaced, and lives on without knowing, neither asks devices nor takes their"
    " answers.",
    before="a run whose command was killed went on beside the one that took its place",
)
def test_two_coordinators(server, reached):
    mine, former = server.caller(7), server.fence
    old = server.send(mine)
    server.fence = server.store.take_over()
    with pytest.raises(RunError, match="another command"):
        replace(server, fence=former).send(mine)
    assert mine.task() == old  # of the former; its answer is no use to anybody
    assert mine.ask(f"{ANSWER}{old}", ANSWER_BODY).status_code == 200
    assert server.store.collect(former) == server.store.collect(server.fence) == []
    new = server.send(mine)
    assert mine.task() == new
    assert mine.ask(f"{ANSWER}{new}", ANSWER_BODY).status_code == 200
    assert server.collected() == [(new, mine.number)]
    reached("it sends nothing and collects nothing")


@attack(
    "lying node",
    "Of two processes with one key, one takes part: the other is turned away until the first has left.",
    before="refused",
)
def test_two_sessions_with_one_key(server, reached):
    first, second = server.caller(8), server.caller(8)
    second.session = "b" * 32
    assert first.check_in().status_code == 200
    refused = second.check_in()
    assert refused.status_code == 409
    assert "is connected" in refused.json()["error"]
    second.nonce += 1
    assert second.check_in(leaving=True).status_code == 409  # nor does it send the first one away
    first.nonce = max(first.nonce, second.nonce)
    assert first.check_in(leaving=True).status_code == 200
    second.nonce = max(first.nonce, second.nonce)
    assert second.check_in().status_code == 200
    reached("refused")


@pytest.mark.parametrize(("node", "ahead"), [(9, -3600.0), (10, 3600.0), (11, 0.0)])
def test_a_wrong_clock_corrects_itself(server, node, ahead, monkeypatch):
    """The line of a device whose clock is an hour off joins, as the refusal has told it the time."""
    real, statuses = time.time, []
    clock = SimpleNamespace(time=lambda: real() + ahead, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(lines, "time", clock)
    line = Line(server.address, server.caller(node).key)
    ask = line._connection.ask

    def asked(*given: Any) -> Answer:
        answer = ask(*given)
        statuses.append(answer.status)
        return answer

    monkeypatch.setattr(line._connection, "ask", asked)
    for _ in range(2):
        line.join()
    line.leave()
    assert statuses == ([401] if ahead else []) + [200, 200, 200]  # it is told once


@attack(
    "stranger",
    "A request that was recorded is refused after five minutes, also one that the server has not seen.",
    before="headers that were recorded opened the server for five minutes",
)
def test_an_old_request(server, reached):
    mine = server.caller(12)
    for ahead in (-WINDOW - 5, WINDOW + 5):
        mine.ahead = ahead
        refused = mine.check_in()
        assert refused.status_code == 401
        assert abs(refused.json()["now"] - time.time()) < 5
    mine.ahead = 0.0
    assert mine.check_in(leaving=True).status_code == 200
    reached("refused")


@attack(
    "stranger",
    "A device finds out that its server is another one before it says anything.",
    before="refused",
)
def test_a_server_with_another_certificate(server, foreign, reached):
    """A line trusts one authority; nothing was received by the server at which it was led."""
    known = server.caller(1)
    wrong = Line(replace(server.address, ca=foreign / "ca.pem"), known.key)
    wrong.stop.set()
    with pytest.raises((ssl.SSLCertVerificationError, DeployError)):
        wrong.join()
    led = Connection(server.address)
    elsewhere = Line(replace(server.address, ca=foreign / "ca.pem"), known.key, connection=led)
    with pytest.raises(DeployError, match="not signed as this federation asks"):
        elsewhere.join()  # its words are for the other federation alone
    led.close()
    reached("refused by the device")


def test_what_a_line_says_of_a_refusal(server, foreign):
    with pytest.raises(UnknownError, match="does not know this key"):
        Line(server.address, server.caller(1, foreign).key).join()
    first = Line(server.address, server.caller(8).key)
    second = server.caller(8)
    second.session = "b" * 32
    second.check_in(leaving=True)
    first.join()
    with pytest.raises(ConnectedError):
        Line(server.address, server.caller(8).key).join()
    first.leave()


# How much and how long


@attack(
    "stranger",
    "One request without a credential does not fill the server's memory.",
    before="a request of 1 GB took the server from 166 MB to 2165 MB",
)
@pytest.mark.parametrize("path", [CHECK_IN, f"{ANSWER}x", ADMIT])
def test_a_large_request(server, path, reached):
    (pid,) = server.server.pids
    before = peak(pid)
    assert push(server.address, path, zeros(GIGABYTE // 4), content_length=GIGABYTE) in {401, 413, CUT_OFF}
    pieces = zeros(GIGABYTE // 4, chunked=True)
    assert push(server.address, path, pieces, transfer_encoding="chunked") in {401, 413, CUT_OFF}
    grown = peak(pid) - before
    assert grown < 50
    reached(f"refused; {grown:.0f} MB")


@attack(
    "stranger",
    "Headers without end do not fill the server's memory.",
    before="300 MB of headers took the server from 159 MB to 466 MB",
)
def test_large_headers(server, reached):
    (pid,) = server.server.pids
    before = peak(pid)
    headers = {f"x_{number}": "a" * MB for number in range(300)}
    assert push(server.address, CHECK_IN, (), **headers) in {400, 401, 431, CUT_OFF}
    grown = peak(pid) - before
    assert grown < 50
    reached(f"refused; {grown:.0f} MB")


def test_a_body_is_no_larger_than_what_a_device_may_say(server):
    mine = server.caller(1)
    for size, status in ((SMALL, 400), (SMALL + 1, 413)):
        assert mine.ask(CHECK_IN, b" " * size).status_code == status


@attack(
    "lying node",
    "A registered node can neither fill the server's memory with large answers nor keep others from"
    " answering.",
    before="60 bodies of 19 MB took the server from 159 MB to 1329 MB",
)
def test_large_answers_at_once(server, reached):
    """It begins many answers and finishes none; the body of each is as long as any may be."""
    (pid,) = server.server.pids
    liar, honest = server.caller(1), server.caller(2)
    path, before = f"{ANSWER}{server.send(liar)}", peak(pid)
    with ExitStack() as stack:
        lines_ = [stack.enter_context(connect(server.address)) for _ in range(10)]
        for line in lines_:
            with suppress(OSError):
                line.sendall(head(path, content_length=LARGEST, **liar.headers(path, b"")))
                for piece in zeros(20 * MB):
                    line.sendall(piece)
        began = time.monotonic()
        other = f"{ANSWER}{server.send(honest)}"
        assert honest.ask(other, bytes(10 * MB)).status_code == 200
        seconds = time.monotonic() - began
        assert sum(map(is_open, lines_)) <= 1
    grown = peak(pid) - before
    assert grown < 100
    assert len(server.collected()) == 1
    reached(f"one at a time; {grown:.0f} MB; others wait {seconds:.1f} s")


@attack(
    "stranger",
    "Connections that say nothing, before TLS or after, and requests that trickle are cut off, and keep"
    " nobody else waiting.",
    before="all 200 slow bodies and all 100 silent connections were there after 40 s",
)
def test_slow_requests_and_silence(server, reached):
    mine = server.caller(1)
    slow = [connect(server.address) for _ in range(60)]
    silent: list[socket.socket] = [connect(server.address) for _ in range(30)]
    for place, line in enumerate(slow):
        body = mine.body()
        signed = mine.headers(CHECK_IN, body)
        start = head(CHECK_IN, content_length=60_000, **signed)
        line.sendall(start if place % 2 else start[:-2])  # its body trickles, or its headers do
    assert server.serves()
    began = time.monotonic()
    while (left := [*filter(is_open, [*slow, *silent])]) and time.monotonic() < began + 60:
        for line in slow:
            with suppress(OSError):
                line.sendall(b"x")
        time.sleep(0.5)
    seconds = time.monotonic() - began
    assert not left
    assert server.serves()
    reached(f"cut off after {seconds:.0f} s")


def test_a_device_that_waits_is_not_cut_off(server):
    """The control: a check-in may be kept open for longer than a slow request."""
    mine = server.caller(1)
    mine.check_in(leaving=True)
    while (name := mine.task()) is not None:
        mine.ask(f"{ANSWER}{name}", ANSWER_BODY)
    began = time.monotonic()
    answer = mine.check_in(wait=3)
    assert answer.status_code == 200
    assert 2 <= time.monotonic() - began < 10
    server.collected()


@attack(
    "stranger",
    "Behind nginx, one address can take neither all connections nor all requests: others are served.",
    before="1200 of 1200 connections were taken and kept; 4000 of 4000 requests were answered",
)
def test_one_address(server, tmp_path, reached):
    """With the configuration of packaging/nginx."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    address, path = replace(server.address, port=free_port()), tmp_path / "server.sock"
    folder = tmp_path / "films"
    with ExitStack() as stack:
        stack.enter_context(serving.running(folder, address, server.keys, path=path))
        stack.enter_context(nginx(tmp_path / "nginx", address.port, server.keys, folder, path, limits=True))
        until = time.monotonic() + 60
        while not listens(address) and time.monotonic() < until:
            time.sleep(0.1)
        lines_ = [stack.enter_context(connect(address, ATTACKER)) for _ in range(150)]
        for line in lines_:
            line.sendall(head(CHECK_IN, content_length=100) + b"{")
        assert ask_health(address) == 200
        kept = sum(map(is_open, lines_))
        assert 0 < kept <= 100
        with suppress(OSError), connect(address, ELSEWHERE) as line:
            line.sendall(head(CHECK_IN, content_length=0) * 1000)
            line.settimeout(1.0)
            answers = b""
            while more := line.recv(1 << 16):
                answers += more
        served = answers.count(b"HTTP/1.1 401")
        assert 100 <= served <= 500
        assert ask_health(address) == 200
    reached(f"{kept} of 150 connections are kept; {served} of 1000 requests are answered")


def listens(address: Address) -> bool:
    with suppress(OSError):
        return ask_health(address) == 200
    return False


def ask_health(address: Address) -> int:
    with connect(address, timeout=10) as line:
        line.sendall(head("/health", "GET"))
        return status_of(line)


# What anybody may send


RANDOM = st.binary(max_size=200)
JSONISH = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
BODIES = RANDOM | JSONISH.map(lambda value: json.dumps(value).encode())
CHECK_INS = st.fixed_dictionaries(
    {},
    optional={
        "session": st.just("c" * 32) | st.text(max_size=40),
        "wait": st.floats(max_value=0.05) | st.integers() | st.text(max_size=5),
        "leaving": st.booleans() | st.text(max_size=5),
        "more": st.integers(),
    },
).map(lambda value: json.dumps(value).encode())
METHODS = st.sampled_from(["GET", "POST", "PUT", "HEAD"])
PATHS = st.sampled_from([CHECK_IN, ANSWER, BLOB, ADMIT, "/health", "/"])
TAILS = st.sampled_from(["", "x", "0" * 64, "%00", "%ff", "..%2f", "?a=b", "a/b", "é".encode().hex()])
LINES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60)


def tried(count: int, *strategies: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """A test of so many inputs."""
    how = settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    return lambda test: how(given(*strategies)(test))


STRANGERS = (st.tuples(METHODS, PATHS, TAILS), BODIES, st.lists(LINES, max_size=3))
SPOILT = st.none() | st.tuples(
    st.integers(0, 2), st.integers(0, 250), st.characters(min_codepoint=33, max_codepoint=126)
)
MEMBERS = (st.sampled_from([CHECK_IN, ANSWER]), TAILS, BODIES | CHECK_INS, SPOILT)
PIECES = (
    st.lists(RANDOM | st.sampled_from([b"GET / HTTP/1.1\r\n", b"\r\n", b"host: x\r\n", b"\0"]), max_size=6),
)


def stranger(server: Web, request_line: tuple[str, str, str], body: bytes, lines_: list[str]) -> None:
    """No request of nobody is a failure of the server's, or is answered with anything but a refusal."""
    method, path, tail = request_line
    names = ("signature", "signature-input", "content-digest", "content-type", "x-anything")
    headers = dict(zip(names, lines_, strict=False))
    answer = server.line.request(method, path + tail, content=body, headers=headers)
    assert answer.status_code < 500, answer.text
    assert answer.is_success == (path == "/health" and method in {"GET", "HEAD"} and tail in {"", "?a=b"})


def member(server: Web, path: str, tail: str, body: bytes, spoilt: tuple[int, int, str] | None) -> None:
    """Nor is one of somebody who is known, with a signature or one that is not whole."""
    mine, url = server.caller(7), path + (tail if path == ANSWER else "")
    headers = mine.headers(httpx.URL(f"https://x{url}").path, body)
    if spoilt is not None:
        name, at = list(headers)[spoilt[0]], spoilt[1]
        text = headers[name][:at] + spoilt[2] + headers[name][at + 1 :]
        headers[name] = "".join(each for each in text if each.isprintable())
    answer = mine.ask(url, body, headers)
    assert answer.status_code < 500, answer.text
    if spoilt is None and path == CHECK_IN:
        assert answer.status_code in {200, 400, 409}


def anything(server: Web, pieces: list[bytes]) -> None:
    with connect(server.address) as line:
        with suppress(OSError):
            for piece in pieces:
                line.sendall(piece)
            line.sendall(b"\r\n\r\n")
        line.settimeout(0.05)
        with suppress(OSError):
            assert not line.recv(4096).startswith(b"HTTP/1.1 5")


@tried(INPUTS, *STRANGERS)
@example(("POST", ADMIT, ""), b"[" * 60_000, [])
@example(("POST", CHECK_IN, ""), b"[" * 60_000, [])
def test_whatever_a_stranger_sends_is_refused(server, request_line, body, lines_):
    stranger(server, request_line, body, lines_)


@tried(INPUTS, *MEMBERS)
@example(CHECK_IN, "", b"[" * 60_000, None)
@example(ANSWER, "%00", b"", None)
def test_whatever_a_member_sends_is_no_failure(server, path, tail, body, spoilt):
    member(server, path, tail, body, spoilt)


@tried(max(30, INPUTS // 5), *PIECES)
def test_whatever_bytes_come_the_server_goes_on(server, pieces):
    anything(server, pieces)


@pytest.mark.slow
def test_many_inputs(server):
    """SOLERA_INPUTS=1000000 pytest -m slow tests/adversary/test_web_attacks.py, of each sort."""
    tried(MANY, *STRANGERS)(stranger)(server)
    tried(MANY, *MEMBERS)(member)(server)
    tried(MANY // 10, *PIECES)(anything)(server)
    assert server.serves()


def test_the_server_has_not_failed(server):
    """After all that: the same worker, and nothing in its log that it could not answer."""
    assert server.serves()
    said = server.server.log.read_text()
    assert "Traceback" not in said
    assert "was not answered" not in said


# Files and programs of the same machine


@attack("stranger", "The server listens on one port, and no order to it comes by that.", before="refused")
def test_other_ports_and_orders(server, reached):
    everything = [pid for each in server.server.pids for pid in (each, *below(each))]
    assert {port for pid in everything for port in listening(pid)} == {server.address.port}
    for path in ("/v1/register", "/v1/revoke", "/v1/task", "/docs", "/openapi.json", "/metrics", "/"):
        for method in ("GET", "POST"):
            assert server.line.request(method, path).status_code in {404, 405}
    reached("one port, with five requests for devices and none for operators")


@attack(
    "local program",
    "Command lines, which every user can read, hold nothing that opens the server.",
    before="the token of the server's app was on its command line, and opened what nodes send",
)
def test_reading_command_lines(server, tmp_path, reached):
    url = f"sqlite:///{tmp_path}/secret-password.db"
    address = replace(server.address, port=free_port())
    with serving.running(tmp_path / "other", address, server.keys, database=url) as running:
        for pid in running.pids:
            words = words_of(pid)
            assert "solera.federation.web.serve" in words
            assert not any("secret-password" in word for word in words)
    reached("nothing")


@attack(
    "local program",
    "Files of a server are for its user alone, whatever the umask.",
    before="folders 0755; database and logs 0644",
)
def test_files_of_a_server(server, tmp_path, reached):
    former = os.umask(0)
    try:
        folder = tmp_path / "films"
        with serving.running(folder, replace(server.address, port=free_port()), server.keys) as running:
            running.store.take_over()
            found = [folder, *folder.rglob("*")]
            assert {"state.db", "server.log", "server.json"} <= {path.name for path in found}
            assert open_to_others(found) == []
    finally:
        os.umask(former)
    reached("0700 and 0600")


# Invitations


def shown(server: Web, key: Any, code: Code) -> httpx.Response:
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    proof = base64.b64encode(sign(key, code.challenge)).decode()
    return server.line.post(ADMIT, json={"code": code.model_dump(), "key": line, "proof": proof})


@attack(
    "stranger",
    "An invitation lets one device in, once, and only one that its authority has invited.",
    before="refused",
)
def test_an_invitation_of_somebody_else(server, foreign, reached):
    given = {
        keys: invitation(keys, "new-1", str(server.address), "films", Agreement()).code
        for keys in (server.keys, foreign)
    }
    mine, thief = new_identity(), new_identity()
    assert shown(server, thief, given[foreign]).status_code == 403
    assert shown(server, mine, given[server.keys]).status_code == 200
    assert shown(server, mine, given[server.keys]).status_code == 200  # the answer was lost
    assert shown(server, thief, given[server.keys]).status_code == 403
    for key, status in ((mine, 200), (thief, 403)):
        caller = Caller(server.address, key, server.line, server.caller(1).tag)
        assert caller.check_in().status_code == status
    reached("refused")
