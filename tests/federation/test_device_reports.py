"""A device's part in threshold reports, with real services: what goes, what is shown, what deleting does."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from commands import solera
from reporting import Services, line_of
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.publish import start
from solera.federation.reports.contributing import Sender
from solera.federation.reports.service import Plan
from solera.privacy.identity import new_identity
from solera.privacy.reports.measurements import Ledger, Measurement, measurements
from solera.privacy.reports.reporter import Reporter
from solera.service import views

PLAN = Plan(federation="films", least_devices=2, reports=12, every=20.0)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    folder = tmp_path / "operators"
    folder.mkdir()
    made = Services(folder, PLAN)
    yield made
    made.end()


@pytest.fixture
def device(key, catalogue, tmp_path) -> Iterator[Device]:
    start("fedease", catalogue, tmp_path / "films.bundle", key)
    made = Device.create(tmp_path / "me", Bundle.open(tmp_path / "films.bundle"))
    for time, item in enumerate((3, 1, 4)):
        made.add(str(item), time=time)
    yield made
    made.close()


def ask(*words: object) -> Any:
    done = solera("device", *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_device_contributes_once_and_shows_what_went(services, device):
    refused = solera("device", "contribute", device.path)
    assert refused.returncode
    assert "you have not agreed" in refused.stderr
    terms = ("--helper", services.url("helper"), "--server-key", services.public.hex())
    assert solera("device", "contribute", device.path, *terms, "--json").returncode  # without --yes
    agreed = ask("contribute", device.path, *terms, "--yes")
    assert (agreed["federation"], agreed["least_devices"]) == ("films", 2)
    assert device.outbox() == []
    services.admit("me", Path(agreed["key"]).read_bytes())
    key = new_identity()
    services.admit("other", line_of(key))
    other = Sender(httpx.Client(base_url=services.url("helper")), key, services.public)

    services.next_epoch()
    sent = ask("contribute", device.path)
    assert sent["went"] == 6
    ledger = Ledger(sqlite3.connect(":memory:"), "films")
    assert other.send(Reporter(ledger, 2), measurements([4, 3], 20), "films") == sent["epoch"]
    assert ask("contribute", device.path) == sent  # again: the same message, which counts once
    expected = {Measurement(0, 3, 3): 2, Measurement(0, 4, 4): 2, Measurement(1, 3, 4): 2}
    assert services.opened(sent["epoch"]) == (24, expected)

    listed = ask("outbox", device.path, "--pairs")
    assert [each["kind"] for each in listed] == 2 * ["blinded", "reports"]
    pairs = {frozenset(each) for each in listed[1]["pairs"]}
    assert pairs == {frozenset({f"Film {a}", f"Film {b}"}) for a in (1, 3, 4) for b in (1, 3, 4)}
    assert "at least 2 devices" in listed[1]["told"]
    assert views.left(device)["sent"] == listed  # what the service of the device shows
    later = ask("contribute", device.path)
    assert later["epoch"] > sent["epoch"]
    assert later["went"] == 0

    device.forget(item="3")
    left = [frozenset(each) for each in ask("outbox", device.path)[1]["pairs"]]
    assert sorted(map(len, left)) == [0, 0, 0, 1, 1, 2]  # that three went stays known, not which
    number = device.catalogue.number["3"].to_bytes(4)
    for (measurement,) in sqlite3.connect(device.store.path).execute("SELECT measurement FROM reported"):
        assert measurement is None or number not in (measurement[1:5], measurement[5:9])
    ask("contribute", device.path, "--stop")
    assert solera("device", "contribute", device.path).returncode
    device.forget()
    assert device.outbox() == []
    assert not Path(agreed["key"]).exists()


def test_a_device_contributes_without_what_trains():
    code = "import sys, solera.federation.reports.contributing; print({'torch', 'polars'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_what_an_owner_has_not_agreed_to_is_refused(device):
    terms = ("--server-key", "00" * 32, "--yes", "--json")
    for given, why in (
        (("--helper", "http://helper.example"), "not an address of https"),
        ((), "both --helper"),
    ):
        refused = solera("device", "contribute", device.path, *given, *terms)
        assert refused.returncode
        assert why in refused.stderr + refused.stdout
    assert device.outbox() == []
