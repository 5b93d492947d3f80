"""Measure an epoch of threshold reports: bytes of a device, and processor time of all three parties."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from solera.privacy.reports.helper import Helper
from solera.privacy.reports.measurements import Ledger, measurements
from solera.privacy.reports.report import Terms
from solera.privacy.reports.reporter import Reporter
from solera.privacy.reports.server import Server

NEWEST = 20


def measure_reports(
    sizes: tuple[int, ...],
    *,
    clients: int = 40,
    least_devices: int = 20,
    on_size: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Processor milliseconds a device, for messages of these sizes. Nearly all pairs are everybody's.

    Every party has a database on disk. There is no network.
    """
    return [_measured(size, clients, least_devices, on_size) for size in sizes]


def _measured(
    reports: int, clients: int, least_devices: int, on_size: Callable[[str], None]
) -> dict[str, Any]:
    spent = {"device": 0.0, "helper": 0.0, "server": 0.0}

    @contextmanager
    def timed(party: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        spent[party] += 1000 * (time.process_time() - begin) / clients

    terms = Terms("bench", 0, least_devices, reports)
    request = answer = message = b""
    with tempfile.TemporaryDirectory() as folder:
        helper = Helper(sqlite3.connect(Path(folder) / "helper.sqlite"))
        server = Server(sqlite3.connect(Path(folder) / "server.sqlite"), X25519PrivateKey.generate())
        public = helper.begin(terms)
        for number in range(clients):
            on_size(f"{reports} reports, device {number + 1} of {clients}")
            device = Reporter(Ledger(sqlite3.connect(":memory:"), "bench"), least_devices)
            half = reports // (2 * NEWEST)
            own = 10**6 + reports * number
            history = [*range(own, own + half), *range(NEWEST + half)]
            with timed("device"):
                request = device.request(terms, measurements(history, NEWEST))
            with timed("helper"):
                answer = helper.evaluate(terms, str(number), request)
            with timed("device"):
                message = device.message(terms, answer, public, server.public)
            with timed("helper"):
                helper.accept(terms, str(number), message)
        with timed("helper"):
            helper.close(terms)
            parts = list(helper.parts(terms))
        with timed("server"):
            for part in parts:
                server.receive(terms, part)
            epoch = server.open(terms)
    sizes = {"bytes_up": len(request) + len(message), "bytes_down": len(answer)}
    opened = {"opened": epoch.measurements, "unopened": epoch.unopened}
    return {
        "reports": reports,
        "least_devices": least_devices,
        "devices": clients,
        **sizes,
        **spent,
        **opened,
    }
