"""A federation of threshold reports in one process, each party with a database of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from solera.privacy.reports.helper import Helper
from solera.privacy.reports.measurements import Ledger, Measurement, measurements
from solera.privacy.reports.report import Terms
from solera.privacy.reports.reporter import Reporter
from solera.privacy.reports.server import Epoch, Server


def database() -> sqlite3.Connection:
    return sqlite3.connect(":memory:")


class Federation:
    """Devices by name, a helper and a server."""

    def __init__(self, least_devices: int = 3, reports: int = 12, name: str = "films") -> None:
        self.least_devices, self.reports, self.name = least_devices, reports, name
        self.helper = Helper(database())
        self.server = Server(database(), X25519PrivateKey.generate())
        self.reporters: dict[str, Reporter] = {}

    def terms(self, epoch: int) -> Terms:
        return Terms(self.name, epoch, self.least_devices, self.reports)

    def reporter(self, device: str) -> Reporter:
        if device not in self.reporters:
            self.reporters[device] = Reporter(Ledger(database(), self.name), self.least_devices)
        return self.reporters[device]

    def send(self, epoch: int, device: str, candidates: Iterable[Measurement]) -> None:
        terms, reporter = self.terms(epoch), self.reporter(device)
        public = self.helper.begin(terms)
        answer = self.helper.evaluate(terms, device, reporter.request(terms, candidates))
        self.helper.accept(terms, device, reporter.message(terms, answer, public, self.server.public))

    def end(self, epoch: int) -> Epoch:
        terms = self.terms(epoch)
        self.helper.close(terms)
        for part in self.helper.parts(terms, size=7):
            assert self.server.receive(terms, part) == 0
        done = self.server.open(terms)
        self.helper.forget(terms)
        return done

    def night(self, epoch: int, histories: Mapping[str, Sequence[int]], newest: int = 20) -> Epoch:
        self.helper.begin(self.terms(epoch))
        for device, history in histories.items():
            self.send(epoch, device, measurements(history, newest))
        return self.end(epoch)
