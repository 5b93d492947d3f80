"""What a federation costs in a month, for a thousand to a million devices: the table of docs/operations.md.

    python tools/costs.py
    python tools/costs.py --vcpu 20 --egress 0.02 --online 0.5

Computed from figures that were measured, all of them with small federations. Each constant below says where
it comes from. Prices and habits are options.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

RECORDS = Path(__file__).parents[1] / "experiments" / "records" / "results"
DEVICES = (10**3, 10**4, 10**5, 10**6)
DAYS = 30

# `solera fleet --nodes 50 --rounds 3 --masked --json`: 16.2 s of the SuperLink for 850 answers.
SUPERLINK_SECONDS = 16.2 / 850
# The guard's limit on connections; a node that waits for a message holds one. docs/deployment.md, Ports.
CONNECTIONS = 4096
# One for the SuperLink, which has one writer, and one for the server's app and the program that starts it.
VCPUS = 2


@dataclass(frozen=True)
class Plan:
    """How a method is used: its rounds, the share of the devices in each, and the time for one."""

    method: str
    rounds: float  # a month
    share: float
    window: float  # seconds


@dataclass(frozen=True)
class Bytes:
    """Of one client and round, on average."""

    up: float
    down: float


@dataclass(frozen=True)
class Prices:
    """In US dollars."""

    vcpu: float  # a month, with its memory
    egress: float  # a GB (10⁹ bytes) that leaves; what arrives is free


@dataclass(frozen=True)
class Cost:
    """Of one federation and month."""

    answers: float  # in a round
    seconds: float  # of SuperLinks in a round
    edges: int  # 0 if the server alone is enough
    limit: str  # what asks for edges
    up: float  # GB
    down: float  # GB
    rate: float  # Mbit/s down while a round is under way
    machines: float  # dollars
    traffic: float  # dollars


def cost(devices: int, plan: Plan, size: Bytes, prices: Prices, online: float) -> Cost:
    """Compute the cost of a month; `online` is the share of the devices that are connected at once."""
    answers = devices * plan.share
    seconds = answers * SUPERLINK_SECONDS
    for_time = math.ceil(seconds / plan.window)
    for_connections = math.ceil(devices * online / CONNECTIONS)
    needed = max(for_time, for_connections)
    edges = needed if needed > 1 else 0
    month = answers * plan.rounds / 1e9
    return Cost(
        answers=answers,
        seconds=seconds,
        edges=edges,
        limit="–" if edges == 0 else "processor" if for_time > for_connections else "connections",
        up=month * size.up,
        down=month * size.down,
        rate=answers * size.down * 8 / plan.window / 1e6,
        machines=(1 + edges) * VCPUS * prices.vcpu,
        traffic=month * size.down * prices.egress,
    )


def measured(data: str, method: str) -> Bytes:
    """Bytes of a client and round, from the record of a benchmark."""
    record = json.loads((RECORDS / data / f"{method}--strict--s0.json").read_text(encoding="utf-8"))
    return Bytes(**record["result"]["bytes"])


def two_digits(value: float) -> str:
    """A number with the two digits that are known."""
    places = 1 - math.floor(math.log10(value))
    return f"{round(value, places):,.{max(places, 0)}f}"


def row(devices: int, plan: Plan, found: Cost) -> str:
    """One line of the table."""
    power = f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[round(math.log10(devices))]}"
    volume = [two_digits(each) for each in (found.answers, found.seconds)]
    traffic = [two_digits(each) for each in (found.up, found.down, found.rate)]
    bill = [two_digits(each) for each in (found.machines, found.traffic, found.machines + found.traffic)]
    return line(power, plan.method, *volume, "1", str(found.edges), found.limit, *traffic, *bill)


def line(*cells: str) -> str:
    """A line of Markdown."""
    return f"| {' | '.join(cells)} |"


HEAD = (
    *("devices", "method", "answers a round", "SuperLink, s a round", "servers", "edges", "because of"),
    *("GB up", "GB down", "Mbit/s down", "machines, $", "traffic, $", "in all, $"),
)


def options() -> argparse.Namespace:
    """Read the options; their defaults are those of the table in the documentation."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m", help="data set whose records have the bytes of a client")
    parser.add_argument("--rounds-a-day", type=float, default=4, help="rounds of fedmf")
    parser.add_argument("--share", type=float, default=0.1, help="share of the devices in a round of fedmf")
    parser.add_argument("--deadline", type=float, default=600, help="seconds for a round of fedmf")
    parser.add_argument("--runs-a-month", type=float, default=4, help="runs of fedease, of one round each")
    parser.add_argument("--night", type=float, default=8, help="hours for the round of fedease")
    parser.add_argument("--online", type=float, default=0.25, help="share of the devices connected at once")
    parser.add_argument("--vcpu", type=float, default=30, help="dollars for a vCPU and month")
    parser.add_argument("--egress", type=float, default=0.09, help="dollars for a GB that leaves")
    return parser.parse_args()


def table(chosen: argparse.Namespace) -> str:
    """All lines."""
    prices = Prices(chosen.vcpu, chosen.egress)
    plans = (
        Plan("fedmf", chosen.rounds_a_day * DAYS, chosen.share, chosen.deadline),
        Plan("fedease", chosen.runs_a_month, 1.0, chosen.night * 3600),
    )
    rows = [
        row(devices, plan, cost(devices, plan, measured(chosen.data, plan.method), prices, chosen.online))
        for plan in plans
        for devices in DEVICES
    ]
    return "\n".join([line(*HEAD), "|---" * len(HEAD) + "|", *rows])


if __name__ == "__main__":
    print(table(options()))
