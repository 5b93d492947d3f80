"""Both operators of threshold reports, for the tests of the page: one JSON object a line, in and out.

{"do": "begin", "terms": […]}
{"do": "evaluate", "device": name, "request": hex}
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from solera.privacy.reports.helper import Helper
from solera.privacy.reports.measurements import Ledger, measurements
from solera.privacy.reports.report import Terms, report
from solera.privacy.reports.reporter import Reporter
from solera.privacy.reports.server import Server


class Parties:
    """Both operators, each with a database of its own."""

    def __init__(self) -> None:
        self.helper = Helper(sqlite3.connect(":memory:"))
        self.server = Server(sqlite3.connect(":memory:"), X25519PrivateKey.generate())
        self.terms = Terms("none", 0, 2, 1)
        self.public = b""

    def begin(self, terms: list[Any]) -> dict[str, str]:
        """Begin an epoch: public keys of both operators, and the bytes of the terms."""
        self.terms = Terms(*terms)
        self.public = self.helper.begin(self.terms)
        keys = {"helper": self.public, "server": self.server.public, "context": self.terms.context}
        return {name: each.hex() for name, each in keys.items()}

    def measure(self, history: list[int], newest: int, *, ordered: bool) -> list[str]:
        """What Python measures of a history."""
        return [each.encoded().hex() for each in measurements(history, newest, ordered=ordered)]

    def report(self, measurement: str, output: str, point: str) -> str:
        """The report that Python makes of a measurement."""
        return report(self.terms, *(bytes.fromhex(each) for each in (measurement, output, point))).hex()

    def evaluate(self, device: str, request: str) -> str:
        """The helper's answer."""
        return self.helper.evaluate(self.terms, device, bytes.fromhex(request)).hex()

    def accept(self, device: str, message: str) -> None:
        """Give the helper a device's message."""
        self.helper.accept(self.terms, device, bytes.fromhex(message))

    def own(self, device: str, history: list[int]) -> None:
        """Let a device of Python's take part."""
        reporter = Reporter(Ledger(sqlite3.connect(":memory:"), self.terms.federation), 2)
        request = reporter.request(self.terms, measurements(history, 20))
        answer = self.helper.evaluate(self.terms, device, request)
        message = reporter.message(self.terms, answer, self.public, self.server.public)
        self.helper.accept(self.terms, device, message)

    def end(self) -> dict[str, Any]:
        """End the epoch: what the server has counted."""
        self.helper.close(self.terms)
        wrong = sum(self.server.receive(self.terms, part) for part in self.helper.parts(self.terms))
        refused = self.server.open(self.terms).refused
        counts = self.server.counts(self.terms.federation)
        return {
            "wrong": wrong,
            "refused": refused,
            "counts": {each.encoded().hex(): count for each, count in counts.items()},
        }


def main() -> None:
    """Answer line by line."""
    parties = Parties()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(parties, asked.pop("do"))(**asked)), flush=True)


if __name__ == "__main__":
    main()
