"""Who reaches what of the server, and how much callers may take; without a network."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import selectors
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from solera.deploy.common.flower import CONNECTED
from solera.deploy.edge import limits
from solera.deploy.edge.activation import Activation
from solera.deploy.edge.guard import Guard
from solera.deploy.edge.limits import LARGEST, SLOWEST, SMALL, WINDOW, Bounds, Callers, Limits, network
from solera.deploy.edge.signatures import is_signed
from solera.deploy.edge.sparse_log import MOST, Sparse

HERE, ELSEWHERE, SERVER = "127.0.0.1", "192.0.2.7", "192.0.2.1"
TOKEN = b"0123456789abcdef"


def scope_of(path: str = "/v1/fleet/push-object", caller: str = HERE, **headers: str) -> dict[str, Any]:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    client, server = (caller, 5), (SERVER, 8000)
    return {"type": "http", "path": path, "client": client, "server": server, "headers": named}


class Exchange:
    """A request whose body comes in pieces, and its answer."""

    def __init__(self, *pieces: bytes, pause: float = 0.0, is_endless: bool = False) -> None:
        self.pieces, self.pause, self.is_endless = list(pieces), pause, is_endless
        self.asked, self.status, self.body = 0, 0, b""

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(self.pause)
        if not self.pieces:
            return {"type": "http.disconnect"}
        more = len(self.pieces) > 1 or self.is_endless
        return {"type": "http.request", "body": self.pieces.pop(0), "more_body": more}

    async def send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")

    async def through(self, app: Any, scope: dict[str, Any]) -> Exchange:
        await app(scope, self.receive, self.send)
        return self


async def echo(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    assert not message["more_body"]
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": message["body"]})


def status(app: Any, scope: dict[str, Any], *pieces: bytes, **how: Any) -> int:
    return asyncio.run(Exchange(*pieces or (b"",), **how).through(app, scope)).status


def make(app: Any = echo, is_trusted: bool = True, **bounds: Any) -> Limits:
    return Limits(app, Bounds(**bounds), lambda scope: is_trusted)


def test_who_reaches_what():
    app: Any = echo
    guard = Guard(app, TOKEN, lambda key: False)
    right, wrong = {"authorization": f"Bearer {TOKEN.decode()}"}, {"authorization": "Bearer 0123"}
    for path in ("/v1/fleet/pull-messages", "/health"):
        assert status(guard, scope_of(path, ELSEWHERE)) == 200
    for path in ("/v1/control/start-run", "/docs", "/v1/fleet", "/v1/fleet/", "/", "/v1/fleet/a/../b"):
        assert status(guard, scope_of(path, ELSEWHERE, **right)) == 403
        for caller in (HERE, "::1", SERVER):
            assert status(guard, scope_of(path, caller)) == 401
            assert status(guard, scope_of(path, caller, **wrong)) == 401
            assert status(guard, scope_of(path, caller, **right)) == 200
    for caller, expected in ((HERE, 200), (SERVER, 200), (ELSEWHERE, 403), ("no address", 403)):
        assert status(guard, scope_of("/v1/runtime/acquire-task", caller)) == expected
    proxied = scope_of("/v1/runtime/acquire-task", SERVER, x_forwarded_for=ELSEWHERE)
    assert status(guard, proxied) == 403  # a proxy that is not believed says that it calls for somebody
    assert status(guard, {**scope_of("/docs", **right), "client": None}) == 403
    twice = scope_of("/docs", **wrong)
    twice["headers"] += scope_of(**right)["headers"]
    assert status(guard, twice) == 401


def test_a_body_that_is_declared_too_large_is_not_read():
    found = asyncio.run(Exchange(b"x").through(make(), scope_of(content_length=str(LARGEST + 1))))
    assert (found.status, found.asked) == (413, 0)


def test_a_large_body_of_a_stranger_is_not_read():
    strangers = make(is_trusted=False)
    found = asyncio.run(Exchange(b"x").through(strangers, scope_of(content_length=str(SMALL + 1))))
    assert (found.status, found.asked) == (401, 0)
    small = bytes(SMALL)
    assert status(strangers, scope_of(content_length=str(SMALL)), small) == 200
    assert status(strangers, scope_of(), small) == 200


def test_what_was_not_declared_is_counted():
    assert status(make(), scope_of(), bytes(SMALL), b"x") == 413
    assert status(make(), scope_of(content_length="10"), bytes(SMALL), b"x") == 413
    large = SMALL + 10
    assert status(make(), scope_of(content_length=str(large)), bytes(large), b"x") == 413
    pieces = Exchange(b"a", b"b", bytes(large))
    found = asyncio.run(pieces.through(make(), scope_of(content_length=str(LARGEST))))
    assert found.body == b"ab" + bytes(large)


def test_a_caller_who_goes_away_is_not_answered():
    assert status(make(), scope_of(), b"x", is_endless=True) == 0


class Jumping(selectors.DefaultSelector):
    """Does not wait for what is due later: its clock jumps there. It does wait for other threads."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        self.now += max(timeout, 0)
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """Seconds take no time, and a busy machine adds none."""

    def __init__(self) -> None:
        self.clock = Jumping()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def timed(exchange: Exchange, scope: dict[str, Any]) -> float:
    """How long an exchange takes, by the loop's clock."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(exchange.through(make(), scope))
        return runner.get_loop().time()


@pytest.mark.parametrize(
    ("pieces", "pause"), [((b"x",), 1000.0), ((b"x",) * 1000, 0.5)], ids=["silent", "a byte at a time"]
)
def test_slow_bodies(pieces, pause):
    slow = Exchange(*pieces, pause=pause, is_endless=True)
    assert timed(slow, scope_of()) == pytest.approx(WINDOW)
    assert (slow.status, slow.body) == (503, b"too slow")


@pytest.mark.parametrize(("rate", "status"), [(2 * SLOWEST, 200), (SLOWEST // 2, 503)])
def test_a_body_that_moves_on_may_take_its_time(rate, status):
    """Twelve times the window in all, if it is fast enough."""
    piece = rate * WINDOW / 4
    body = Exchange(*[bytes(int(piece))] * 48, pause=WINDOW / 4)
    seconds = timed(body, scope_of(content_length=str(int(piece) * 48)))
    assert body.status == status
    assert seconds == pytest.approx(12 * WINDOW if status == 200 else WINDOW)


class Held:
    """An app that answers when told to."""

    def __init__(self) -> None:
        self.entered, self.leave = 0, asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.entered += 1
        await self.leave.wait()
        await echo(scope, receive, send)


async def _at_once(
    app: Any, scopes: list[dict[str, Any]], size: int, settled: int
) -> AsyncIterator[list[int]]:
    """The answers when so many are refused or at the app, which holds its own back; and those in the end."""
    held = Held()
    app._app = held
    exchanges = [Exchange(bytes(size)) for _ in scopes]
    tasks = [
        asyncio.create_task(each.through(app, scope)) for each, scope in zip(exchanges, scopes, strict=True)
    ]
    async with asyncio.timeout(30):
        while held.entered + sum(each.status > 0 for each in exchanges) < settled:
            await asyncio.sleep(0.01)
    yield [each.status for each in exchanges]
    held.leave.set()
    await asyncio.gather(*tasks)
    yield [each.status for each in exchanges]


def twice(app: Any, scopes: list[dict[str, Any]], settled: int, size: int = 1) -> list[list[int]]:
    async def run() -> list[list[int]]:
        return [each async for each in _at_once(app, scopes, size, settled)]

    return asyncio.run(run())


def test_requests_at_once():
    scopes = [scope_of(caller=ELSEWHERE)] * 4 + [scope_of()] * 3
    during, after = twice(make(requests=4), scopes, settled=7)
    assert during == [0, 0, 503, 503, 0, 0, 503]  # half for each of the two addresses
    assert after == [200, 200, 503, 503, 200, 200, 503]


def test_large_bodies_wait_for_each_other(monkeypatch):
    size = SMALL + 1
    scopes = [scope_of(content_length=str(size))] * 3
    app = make(bytes=4 * size)
    during, after = twice(app, scopes, settled=2, size=size)
    assert during == [0, 0, 0]
    assert after == [200, 200, 200]
    assert app._all.bytes == app._all.requests == 0
    monkeypatch.setattr(limits, "PATIENCE", 0.1)
    other = scope_of(caller=ELSEWHERE, content_length=str(size))
    during, after = twice(make(bytes=4 * size), [*scopes, other], settled=4, size=size)
    # Two are half of all memory, the most that one address has; which two depends on whose check ends first.
    assert (sorted(during[:3]), during[3]) == ([0, 0, 503], 0)
    assert (sorted(after[:3]), after[3]) == ([200, 200, 503], 200)


def test_a_rate_for_each_address():
    async def run() -> list[int]:
        app = make(burst=3, rate=0.001)
        callers = [HERE] * 5 + [ELSEWHERE]
        found = [(await Exchange(b"").through(app, scope_of(caller=each))).status for each in callers]
        app._callers.of(HERE).at -= 1000
        found.append((await Exchange(b"").through(app, scope_of())).status)
        return found

    assert asyncio.run(run()) == [200, 200, 200, 503, 503, 200, 200]


def test_addresses_that_are_remembered_are_few():
    callers = Callers(burst=10)
    busy = callers.of("busy")
    busy.requests = 1
    for number in range(3 * limits.MOST_ADDRESSES):
        callers.of(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}").left = 0
    assert len(callers) == limits.MOST_ADDRESSES
    assert callers.of("busy") is busy


def test_whom_a_caller_is_counted_as():
    assert network((ELSEWHERE, 1)) == ELSEWHERE
    assert network((f"::ffff:{ELSEWHERE}", 1)) == ELSEWHERE
    assert network(("2001:db8:1:2:3:4:5:6", 1)) == network(("2001:db8:1:2:ffff::", 1)) == "2001:db8:1:2::"
    assert network(("::1", 1)) == "::1"
    assert network(("x" * 1000, 1)) == network(None) == "unknown"


def test_a_signature_is_a_registered_keys_and_fresh():
    secret, public = generate_key_pairs()
    key = public_key_to_bytes(public)

    def signed(age: float = 0.0, with_=secret) -> dict[str, Any]:
        stamp = (now() - timedelta(seconds=age)).isoformat()
        signature = sign_message(with_, stamp.encode())
        encoded = {"flwr_public_key": key, "flwr_signature": signature}
        return scope_of(
            flwr_timestamp=stamp,
            **{name: base64.b64encode(value).decode() for name, value in encoded.items()},
        )

    check = partial(is_signed, is_known=lambda given: given == key)
    assert check(signed())
    assert not check(signed(age=400))
    assert not check(signed(age=-60))
    assert not check(signed(with_=generate_key_pairs()[0]))
    assert not is_signed(signed(), lambda given: False)
    assert not check(scope_of())
    assert not check(scope_of(flwr_public_key="§", flwr_signature="x", flwr_timestamp="yesterday"))


@pytest.mark.parametrize(("is_known", "extra"), [(True, CONNECTED), (False, None)])
def test_why_a_node_was_not_let_in(is_known, extra):
    body = b'{"code": 2004, "detail": "Failed to activate SuperNode."}'

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 412, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def run(path: str) -> None:
        await Activation(app, lambda key: is_known)(scope_of(path), Exchange().receive, send)

    asyncio.run(run("/v1/fleet/activate-node"))
    start, end = sent
    assert json.loads(end["body"]).get("extra") == extra
    assert dict(start["headers"])[b"content-length"] == str(len(end["body"])).encode()
    asyncio.run(run("/v1/fleet/get-run"))
    assert sent[-1]["body"] == body


def test_a_log_of_refusals_is_short(monkeypatch):
    minute = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: minute[0])
    sparse = Sparse()

    def line(status: int) -> logging.LogRecord:
        args = ("1.2.3.4:5", "POST", "/", "1.1", status)
        text = '%s - "%s %s HTTP/%s" %d'
        return logging.LogRecord("uvicorn.access", logging.INFO, "f", 1, text, args, None)

    assert sum(sparse.filter(line(401)) for _ in range(1000)) == MOST
    assert all(sparse.filter(line(200)) for _ in range(1000))
    minute[0] = 61.0
    next_ = line(401)
    assert sparse.filter(next_)
    assert next_.getMessage().startswith(f"{1000 - MOST} lines were left out; 1.2.3.4:5")
