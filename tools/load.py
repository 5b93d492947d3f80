"""The web transport under load on this machine: a million devices in PostgreSQL, TLS by nginx, two workers.

    python tools/load.py --devices 1000000 --rate 500 --seconds 300

Everything is real and runs here: PostgreSQL, nginx with TLS, workers, and the generator, which signs every
request with a device's key, and whose share of the cores is told apart. Prints one JSON document: latencies
at the given rate, the highest rates of check-ins and of uploads, and CPU a request by part.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import ssl
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "federation"))
from engines import nginx, postgres

from solera.federation.common.address import Address, tag_of
from solera.federation.common.authority import make_keys
from solera.federation.common.wire import ANSWER, CHECK_IN
from solera.federation.operate import server
from solera.federation.operate.processes import free_port
from solera.federation.web.signing import device_number, signed_headers
from solera.federation.web.store import Message, Store
from solera.privacy.identity import new_identity, public_identity

CONNECTIONS = 64
SIGNERS = 20_000  # devices whose secret keys the generator has; the others are rows as any


class Client:
    """HTTP/1.1 over one TLS connection, and nothing more: a library would take most of the CPU here."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port, self._context = port, context

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._context)

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """One request; its status and body."""
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        self._writer.write(head.encode() + body)
        await self._writer.drain()
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length, is_last = 0, False
        for line in answer.split("\r\n")[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
            is_last |= name.lower() == "connection" and value.strip() == "close"
        found = int(answer.split(" ", 2)[1]), await self._reader.readexactly(length)
        if is_last:  # nginx ends a connection after a thousand requests
            self.close()
            await self.open()
        return found

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


class Load:
    """Signed requests of many devices."""

    def __init__(self, keys: list[Any], tag: str, port: int, ca: Path) -> None:
        self._keys, self._tag, self._port = keys, tag, port
        self._context = ssl.create_default_context(cafile=ca)
        self._nonce = time.time_ns() // 1000
        self.sessions = [f"{number:032x}" for number in range(len(keys))]

    def signed(self, place: int, path: str, body: bytes) -> dict[str, str]:
        """The headers of one request."""
        self._nonce += 1
        key = self._keys[place]
        return signed_headers(
            key, "POST", path, body, tag=self._tag, created=int(time.time()), nonce=self._nonce
        )

    def check_in(self, place: int) -> tuple[str, bytes]:
        """What a device sends."""
        return CHECK_IN, json.dumps({"session": self.sessions[place]}).encode()

    async def run(self, requests: Any, *, seconds: float, rate: float | None) -> dict[str, Any]:
        """Requests from `requests()`, at a rate or as fast as they are answered."""
        clients = [Client(self._port, self._context) for _ in range(CONNECTIONS)]
        await asyncio.gather(*(client.open() for client in clients))
        took: list[float] = []
        failed = 0
        began = time.monotonic()
        sent = 0

        async def work(client: Client) -> None:
            nonlocal sent, failed
            while time.monotonic() - began < seconds:
                due = began + sent / rate if rate else 0.0
                sent += 1
                if rate and (early := due - time.monotonic()) > 0:
                    await asyncio.sleep(early)
                made = requests()
                if made is None:
                    return
                place, path, body = made
                at = due or time.monotonic()  # of what was due: a wait for a free connection counts
                status, _ = await client.post(path, body, self.signed(place, path, body))
                took.append(time.monotonic() - at)
                failed += status != 200

        await asyncio.gather(*(work(client) for client in clients))
        spent = time.monotonic() - began
        for client in clients:
            client.close()
        took.sort()

        def place(share: float) -> float:
            return round(1000 * took[min(len(took) - 1, int(share * len(took)))], 2)

        return {
            "requests": len(took),
            "failed": failed,
            "a_second": round(len(took) / spent, 1),
            "ms": {"p50": place(0.5), "p99": place(0.99), "most": place(1.0)},
        }


class Spent:
    """CPU seconds of every part."""

    def __init__(self, parts: dict[str, list[int]]) -> None:
        self._parts, self._before = parts, self._now(parts)

    @staticmethod
    def _now(parts: dict[str, list[int]]) -> dict[str, dict[int, float]]:
        found: dict[str, dict[int, float]] = {}
        for name, roots in parts.items():
            found[name] = {}
            for root in roots:
                process = psutil.Process(root)
                family = [process] if name == "generator" else [process, *process.children(recursive=True)]
                for each in family:
                    times = each.cpu_times()
                    found[name][each.pid] = times.user + times.system
        return found

    def milliseconds(self, requests: int) -> dict[str, float]:
        """Of each part, a request."""
        now = self._now(self._parts)
        return {
            name: round(
                1000 * sum(v - self._before[name].get(pid, 0.0) for pid, v in of.items()) / requests, 3
            )
            for name, of in now.items()
        }


def registered(url: str, devices: int, keys: list[Any]) -> float:
    """Fill the table of devices; returns seconds."""
    began = time.monotonic()
    what = "COPY devices (number, key) FROM STDIN"
    with psycopg.connect(url) as line, line.cursor() as cursor, cursor.copy(what) as copy:
        for key in keys:
            der = public_identity(key)
            copy.write_row((device_number(der), der))
        for _ in range(devices - len(keys)):
            der = os.urandom(91)
            copy.write_row((device_number(der), der))
    with psycopg.connect(url, autocommit=True) as line:
        line.execute("VACUUM ANALYZE devices")
    return time.monotonic() - began


def tell(text: str) -> None:
    """Progress."""
    sys.stderr.write(f"· {text}\n")
    sys.stderr.flush()


def main() -> None:  # noqa: PLR0915 - one step after the other
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--highest", type=float, default=30, help="seconds at the highest rate")
    parser.add_argument("--uploads", type=int, default=4000)
    given = parser.parse_args()
    draw = random.Random(0)
    report: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="solera-load-")))
        make_keys(root / "keys", 0)
        engine = stack.enter_context(postgres())
        port = free_port()
        address = Address("127.0.0.1", port, root / "keys" / "ca.pem")
        folder, path = root / "films", root / "server.sock"
        front = stack.enter_context(nginx(root / "nginx", port, root / "keys", folder, path))
        running = stack.enter_context(
            server.running(
                folder, address, root / "keys", database=engine.url, workers=2, path=path, every=2e3
            )
        )
        keys = [new_identity() for _ in range(min(SIGNERS, given.devices))]
        tell(f"{given.devices:,} devices")
        report["devices"] = given.devices
        report["registering_seconds"] = round(registered(engine.url, given.devices, keys), 1)
        load = Load(keys, tag_of(address.ca), port, root / "keys" / "ca.pem")
        parts = {
            "nginx": [front.pid],
            "workers": running.pids,
            "postgres": [engine.process.pid],
            "generator": [os.getpid()],
        }

        turns = itertools.cycle(range(len(keys)))  # so that no device has two requests under way

        def check_ins() -> tuple[int, str, bytes]:
            place = next(turns)
            return place, *load.check_in(place)

        def measured(requests: Any, seconds: float, rate: float | None) -> dict[str, Any]:
            spent = Spent(parts)
            found = asyncio.run(load.run(requests, seconds=seconds, rate=rate))
            return found | {"cpu_ms": spent.milliseconds(found["requests"])}

        tell(f"{given.rate:g} check-ins a second for {given.seconds:g} s")
        report["check_ins_at_rate"] = {"rate": given.rate} | measured(check_ins, given.seconds, given.rate)
        tell("check-ins, as many as are answered")
        report["check_ins_highest"] = measured(check_ins, given.highest, None)
        store = Store(running.store._database)
        fence = store.take_over()
        for size, count in ((46_000, given.uploads), (1_000_000, given.uploads // 10)):
            places = draw.sample(range(len(keys)), count)  # a device sends one answer at a time
            numbers = [device_number(public_identity(keys[place])) for place in places]
            names = store.send(
                [Message(number, "train", "load", b"", "") for number in numbers], fence=fence, seconds=3600
            )
            waiting = list(zip(places, names, strict=True))
            body = os.urandom(size)

            def uploads(waiting: Any = waiting, body: bytes = body) -> tuple[int, str, bytes] | None:
                if not waiting:
                    return None
                place, name = waiting.pop()
                return place, f"{ANSWER}{name}", body

            tell(f"uploads of {size:,} bytes")
            report[f"uploads_{size}"] = measured(uploads, 600, None)
            kept = running.store._database.rows("SELECT count(*) FROM answers")[0][0]
            report[f"uploads_{size}"]["kept"] = kept
            running.store._database.rows("DELETE FROM tasks")
        report["load_after"] = os.getloadavg()[0]
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
