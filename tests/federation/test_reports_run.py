"""Some nights of `tools/reports_run.py`: real services, PostgreSQL, kills, and every night's counts exact."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from engines import postgres

from programs import program
from solera.federation.reports.service import Plan

PLAN = Plan(federation="films", least_devices=2, reports=14, every=10.0)


@pytest.mark.slow
def test_every_night_is_exact_under_kills(tmp_path):
    with postgres() as database:
        found = program("reports_run").run(tmp_path, PLAN, database.url, devices=30, nights=5)
    assert found["wrong"] == []
    assert found["opened"] > 10
    assert found["kills"] == {"helper": 2, "server": 1}


@pytest.mark.slow
def test_ledgers_that_are_lost_are_found(tmp_path):
    """The control: devices that report everything again make counts that are not the plain ones."""
    found = program("reports_run").run(tmp_path, PLAN, None, devices=30, nights=3, broken=True)
    assert found["wrong"]


@pytest.mark.slow
def test_a_page_in_chromium_is_a_device(tmp_path):
    """Its reports count with those of Python's devices."""
    web = Path(__file__).parents[2] / "web"
    if not (web / "node_modules").is_dir() or not any(map(shutil.which, ("chromium", "google-chrome"))):
        pytest.skip("needs Chromium, and `npm ci` in web/")
    found = program("reports_run").run(tmp_path, PLAN, None, devices=10, nights=3, seed=5, browser=True)
    assert found["wrong"] == []
    assert found["messages of Chromium"] > 0
    assert found["opened"] > 0
