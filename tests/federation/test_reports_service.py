"""Helper, server and devices of threshold reports over HTTP: real processes, each with its own database."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator

import httpx
import pytest

from reporting import Services, line_of
from solera.core.errors import DeployError
from solera.federation.reports.contributing import Sender
from solera.federation.reports.service import Plan
from solera.privacy.identity import new_identity
from solera.privacy.reports.measurements import Ledger, Measurement, counted, measurements
from solera.privacy.reports.reporter import Reporter

LEAST, REPORTS, EVERY = 2, 12, 20.0


@pytest.fixture
def services(tmp_path) -> Iterator[Services]:
    made = Services(tmp_path, Plan(federation="films", least_devices=LEAST, reports=REPORTS, every=EVERY))
    yield made
    made.end()


def device(services: Services, name: str, *, known: bool = True) -> Sender:
    key = new_identity()
    if known:
        services.admit(name, line_of(key))
    return Sender(httpx.Client(base_url=services.url("helper")), key, services.public, attempts=200)


def reporter() -> Reporter:
    return Reporter(Ledger(sqlite3.connect(":memory:"), "films"), LEAST)


@pytest.mark.slow
def test_epochs_with_kills_of_both_services(services):
    """Killed before, between and after messages; every epoch has the plain counts of at least T devices."""
    draw = random.Random(3)
    devices = {name: (device(services, name), reporter()) for name in "abcd"}
    histories: dict[str, list[int]] = {name: [] for name in devices}
    sent: dict[int, list[list[Measurement]]] = {}
    for night in range(2):
        services.next_epoch()  # so that all are in one
        for name, (sender, own) in devices.items():
            histories[name] += [draw.randrange(4), draw.randrange(4)]
            if name == "c":
                services.kill("helper")
            epoch = sender.send(own, list(measurements(histories[name], 20)), "films")
            sent.setdefault(epoch, []).append(own.ledger.of(epoch))
        if night == 1:
            services.running["server"].kill()
            time.sleep(EVERY)  # the helper cannot relay
            services.kill("server")
    for epoch, reports in sent.items():
        expected = {each: count for each, count in counted(reports).items() if count >= LEAST}
        if len(reports) >= LEAST:
            assert services.opened(epoch)[1] == expected
    assert sum(map(len, sent.values())) == 8


def test_who_is_refused(services):
    stranger = device(services, "stranger", known=False)
    with pytest.raises(DeployError, match="does not know the key"):
        stranger.send(reporter(), list(measurements([1], 20)), "films")
    misled = device(services, "misled")
    misled._server = bytes(32)
    own = reporter()
    with pytest.raises(DeployError, match="relays to another server"):
        misled.send(own, list(measurements([1], 20)), "films")
    assert own.ledger.gone() == []
    assert httpx.post(f"{services.url('server')}/v1/epochs/1/part", content=b"").status_code == 401
    misled._client = httpx.Client(base_url=services.url("server"))
    with pytest.raises(DeployError, match="does not know the key"):
        misled._answer("POST", "/v1/epochs/1/end")
