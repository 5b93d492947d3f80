"""The table of costs: its arithmetic, and that the documentation has what the tool prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from programs import TOOLS, program

costs = program("costs")


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """What an answer takes, whatever was measured last."""
    monkeypatch.setattr(costs, "SUPERLINK_SECONDS", 41.9 / 244)


def test_the_arithmetic():
    """100,000 devices, a tenth of them in each of 120 rounds, a quarter of them online.

    10,000 answers × 41.9 s / 244 = 1,717.2 s, so three SuperLinks for rounds of 600 s. 25,000 connections /
    4,096 = 6.1, so seven. With the server that is eight machines × 2 vCPUs × 30 $ = 480 $.
    Down: 10,000 × 120 × 0.25 MB = 300 GB, 27 $; 10,000 × 0.25 MB × 8 bits / 600 s = 33.3 Mbit/s.
    Up: 10,000 × 120 × 0.05 MB = 60 GB.
    """
    plan = costs.Plan("fedmf", rounds=120, share=0.1, window=600)
    found = costs.cost(
        100_000, plan, costs.Bytes(up=50_000, down=250_000), costs.Prices(30, 0.09), online=0.25
    )
    assert found.seconds == pytest.approx(1717.2, abs=0.05)
    assert (found.edges, found.limit) == (7, "connections")
    assert (found.machines, found.traffic) == (480, pytest.approx(27))
    assert (found.up, found.down) == (pytest.approx(60), pytest.approx(300))
    assert found.rate == pytest.approx(33.33, abs=0.01)


def test_processor_time_asks_for_edges_too():
    """A million answers take 171,721 s; in 8 h one SuperLink has 28,800 s, so six are needed."""
    plan = costs.Plan("fedease", rounds=4, share=1.0, window=28_800)
    found = costs.cost(10**6, plan, costs.Bytes(1, 1), costs.Prices(30, 0.09), online=0.001)
    assert (found.edges, found.limit) == (6, "processor")


@pytest.mark.parametrize(("value", "text"), [(0.2561, "0.26"), (1717.2, "1,700"), (99.6, "100"), (8, "8.0")])
def test_two_digits_are_shown(value, text):
    assert costs.two_digits(value) == text


def test_the_documentation_has_the_table():
    command = [sys.executable, str(TOOLS / "costs.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    assert printed in page
