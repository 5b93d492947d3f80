"""Threshold reports as they would run: two operators as processes, every night against plain counts.

    python tools/reports_run.py --devices 1000 --nights 30

The server's store is a PostgreSQL of its own, the helper's is SQLite. Devices are simulated, each with a key,
a history and a ledger of its own. With --browser one more is a page in Chromium. Devices are
absent on most nights and join late, and new items appear. In every second night one of the services is killed
by `kill -9`. What the server has opened of a night must be exactly the plain counts of that night that reach
T, and the number of reports must be that of the messages sent: nothing is lost or counted twice. Prints one
JSON document.

--broken shows that the comparison can fail: in the middle of the run, devices lose their ledgers.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Protocol

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "federation"))
from engines import postgres

from reporting import NEWEST, Services, line_of
from solera.federation.reports.contributing import Sender
from solera.federation.reports.service import Plan
from solera.privacy.identity import new_identity
from solera.privacy.reports.measurements import Ledger, Measurement, measurements
from solera.privacy.reports.reporter import Reporter

ACTIVE = 0.35  # part of the devices that are there in a night
MARGIN = 0.4  # of an epoch in which no device begins


class Device(Protocol):
    """What takes part."""

    def send(self, history: list[int]) -> int:
        """Report what is new of a history; the epoch."""

    def lose(self) -> None:
        """Begin with an empty ledger."""


class Browser:
    """A page in Chromium."""

    def __init__(self, services: Services) -> None:
        plan = services.plan
        agreed = {"helper": services.url("helper"), "server": services.public.hex(), "newest": NEWEST}
        agreed |= {"federation": plan.federation, "leastDevices": plan.least_devices, "ordered": False}
        command = ["node", "tests/reports_device.mjs", json.dumps(agreed)]
        web = Path(__file__).parents[1] / "web"
        self._node = subprocess.Popen(command, cwd=web, stdin=PIPE, stdout=PIPE, text=True, bufsize=1)
        services.admit("page", self._said()["key"].encode())

    def _said(self) -> dict[str, Any]:
        assert self._node.stdout
        return dict(json.loads(self._node.stdout.readline()))

    def send(self, history: list[int]) -> int:
        """Report what is new of a history; the epoch."""
        print(json.dumps(history), file=self._node.stdin)
        return int(self._said()["epoch"])

    def lose(self) -> None:
        """The page keeps its ledger: it is one device of many."""

    def end(self) -> None:
        """Close the page."""
        assert self._node.stdin
        self._node.stdin.close()
        self._node.wait()


class Simulated:
    """A device with a key, and with a ledger in memory."""

    def __init__(self, services: Services, client: httpx.Client, name: str) -> None:
        key = new_identity()
        services.admit(name, line_of(key))
        self._sender, self._plan = Sender(client, key, services.public, attempts=200), services.plan
        self.lose()

    def send(self, history: list[int]) -> int:
        """Report what is new of a history; the epoch."""
        return self._sender.send(self._reporter, measurements(history, NEWEST), self._plan.federation)

    def lose(self) -> None:
        """Begin with an empty ledger."""
        ledger = Ledger(sqlite3.connect(":memory:"), self._plan.federation)
        self._reporter = Reporter(ledger, self._plan.least_devices)


class World:
    """Histories, who is there, and what they report in plain: by sets, without ledger or cryptography."""

    def __init__(self, devices: int, nights: int, reports: int, seed: int) -> None:
        self._draw, self._reports = random.Random(seed), reports
        late = [self._draw.randrange(nights) for _ in range(devices)]
        self._joins = [0 if self._draw.random() < 0.7 else night for night in late]
        self._joins[0] = 0
        self.histories: list[list[int]] = [[] for _ in range(devices)]
        self._gone: list[set[Measurement]] = [set() for _ in range(devices)]

    def night(self, night: int) -> Iterator[int]:
        """Who is there in this night, in random order, with new items."""
        there = [each for each, joins in enumerate(self._joins) if joins <= night]
        self._draw.shuffle(there)
        for device in there:
            if self._draw.random() < ACTIVE:
                for _ in range(self._draw.randint(1, 2)):
                    known = 6 + 2 * night  # new items come, and popular ones are the oldest
                    self.histories[device].append(int(known * self._draw.random() ** 3))
                yield device

    def reported(self, device: int) -> set[Measurement]:
        """What a device that is there reports: the first that never went."""
        new = [
            each for each in measurements(self.histories[device], NEWEST) if each not in self._gone[device]
        ]
        self._gone[device] |= set(new[: self._reports])
        return set(new[: self._reports])


@contextmanager
def killing(services: Services, name: str, after: float) -> Iterator[None]:
    """Kill a service some time from now. Raises an error if it does not come back."""

    def kill() -> None:
        time.sleep(after)
        services.kill(name)

    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        yield
        killed.result()


def run(
    folder: Path,
    plan: Plan,
    database: str | None,
    *,
    devices: int,
    nights: int,
    seed: int = 0,
    broken: bool = False,
    browser: bool = False,
) -> dict[str, Any]:
    """All nights. Figures, and under `wrong` the nights whose counts are not the plain ones."""
    draw, world = random.Random(seed), World(devices + browser, nights, plan.reports, seed)
    made: dict[int, Device] = {}
    found: dict[str, Any] = {
        "messages": 0,
        "messages of Chromium": 0,
        "opened": 0,
        "devices counted": 0,
        "wrong": [],
    }
    began, own = time.monotonic(), psutil.Process().cpu_times().user
    with ExitStack() as stack:
        services = Services(folder, plan, database)
        stack.callback(services.end)
        client = stack.enter_context(httpx.Client(base_url=services.url("helper"), timeout=60))
        if browser:
            page = Browser(services)
            stack.callback(page.end)
            made[0] = page
        waiting: list[tuple[int, int, Counter[Measurement], int]] = []
        for night in range(nights):
            if broken and night == nights // 2:
                for each in made.values():
                    each.lose()
            epoch = services.next_epoch()
            plain: Counter[Measurement] = Counter()
            sent = 0
            victim = None if night % 2 else ("helper", "server")[night // 2 % 2]
            relaying = victim == "server" or draw.random() < 0.5  # what came in the night before
            after = 1 + 2 * draw.random() if relaying else draw.random() * plan.every
            with killing(services, victim, after) if victim else ExitStack():
                for device in world.night(night):
                    if time.time() > plan.every * (epoch + 1 - MARGIN):
                        break
                    if device not in made:
                        made[device] = Simulated(services, client, f"device-{device}")
                    assert made[device].send(world.histories[device]) == epoch
                    plain.update(world.reported(device))
                    sent += 1
                    found["messages of Chromium"] += browser and device == 0
            waiting.append((night, epoch, plain, sent))
            found["messages"] += sent
            print(f"night {night}: {sent} devices, {time.monotonic() - began:.0f} s", file=sys.stderr)
        for night, epoch, plain, sent in waiting:
            expected = {each: count for each, count in plain.items() if count >= plan.least_devices}
            if sent < plan.least_devices:  # nothing is relayed
                continue
            reports, counts = services.opened(epoch)
            if counts != expected or reports != sent * plan.reports:
                found["wrong"].append(night)
            found["opened"] += len(counts)
            found["devices counted"] += sum(counts.values())
    found["kills"] = dict(services.kills)
    used = {"devices": psutil.Process().cpu_times().user - own} | services.seconds
    return found | {
        "devices": len(made),
        "processor seconds": {name: round(seconds) for name, seconds in used.items()},
        "seconds": round(time.monotonic() - began),
    }


def main() -> None:
    """Run, and fail if a night is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--devices", type=int, default=30)
    parser.add_argument("--nights", type=int, default=5)
    parser.add_argument("--every", type=float, default=10.0, help="seconds of a night")
    parser.add_argument("--reports", type=int, default=14, help="of a message")
    parser.add_argument("--least-devices", type=int, default=5, help="T")
    parser.add_argument("--sqlite", action="store_true", help="both stores in SQLite")
    parser.add_argument("--browser", action="store_true", help="one more device in Chromium")
    parser.add_argument("--broken", action="store_true", help="ledgers are lost: the comparison must fail")
    given = parser.parse_args()
    sizes = {"least_devices": given.least_devices, "reports": given.reports, "every": given.every}
    plan = Plan(federation="films", **sizes)
    with ExitStack() as stack:
        database = None if given.sqlite else stack.enter_context(postgres())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        wanted = {"devices": given.devices, "nights": given.nights, "browser": given.browser}
        url = database.url if database else None
        found = run(folder, plan, url, **wanted, broken=given.broken)
        if database:
            found["processor seconds"]["PostgreSQL"] = round(database.seconds())
    print(json.dumps(found, indent=1))
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
