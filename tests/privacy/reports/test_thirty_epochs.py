"""Thirty nights with helper and server as processes of their own, both killed again and again.

pytest -m slow tests/privacy/reports/test_thirty_epochs.py
"""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from solera.privacy.reports.measurements import Ledger, Measurement, counted, measurements
from solera.privacy.reports.report import Terms
from solera.privacy.reports.reporter import Reporter

NIGHTS, DEVICES, LEAST, REPORTS, NEWEST, ITEMS = 30, 40, 3, 12, 6, 60


class Party:
    """A process that may be killed with `kill -9` when it was asked something. Then it is asked again."""

    def __init__(self, *command: object, kills: float, seed: int) -> None:
        program = Path(__file__).with_name("party.py")
        self._command = [sys.executable, str(program), *map(str, command)]
        self._draw, self._kills, self.killed = random.Random(seed), kills, 0
        self._start()

    def _start(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)

    def ask(self, do: str, terms: Terms, *given: object) -> Any:
        said = [f"hex:{each.hex()}" if isinstance(each, bytes) else each for each in given]
        listed = [terms.federation, terms.epoch, terms.least_devices, terms.reports]
        line = json.dumps({"do": do, "terms": listed, "given": said}) + "\n"
        while True:
            timer = None
            if self._draw.random() < self._kills:
                timer = threading.Timer(self._draw.random() * 0.02, self._process.kill)
                timer.start()
            try:
                self._process.stdin.write(line)
                self._process.stdin.flush()
                answer = self._process.stdout.readline()
            except BrokenPipeError:
                answer = ""
            if timer is not None:
                timer.join()
                self._process.wait()
                self.killed += 1
                self._start()
            if answer.endswith("\n"):
                return json.loads(answer)
            assert timer is not None, f"{do} ended the process"

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


@pytest.mark.slow
def test_every_night_opens_exactly_what_enough_devices_have(tmp_path):
    """Absences, new devices and new items; nothing is lost or counted twice, while both are killed."""
    draw, key = random.Random(11), X25519PrivateKey.generate()
    helper = Party("helper", tmp_path / "helper.sqlite", kills=0.02, seed=1)
    server = Party("server", tmp_path / "server.sqlite", key.private_bytes_raw().hex(), kills=0.05, seed=2)
    reporters: list[Reporter] = []
    histories: list[list[int]] = []
    ledgers: list[Ledger] = []  # of a plain world beside
    opened, nights, reports = 0, 0, 0
    for epoch in range(NIGHTS):
        terms = Terms("films", epoch, LEAST, REPORTS)
        public = bytes.fromhex(helper.ask("begin", terms))
        for _ in range(DEVICES // 2 if epoch == 0 else draw.randrange(3)):
            if len(histories) < DEVICES:
                histories.append([])
                reporters.append(Reporter(Ledger(sqlite3.connect(":memory:"), "films"), LEAST))
                ledgers.append(Ledger(sqlite3.connect(":memory:"), "films"))
        sent: list[list[Measurement]] = []
        for device, history in enumerate(histories):
            known = min(ITEMS, 10 + 2 * epoch)  # the catalogue grows
            history += [int(known * draw.random() ** 3) for _ in range(draw.randrange(3))]
            if draw.random() < 0.15:
                continue
            candidates = list(measurements(history, NEWEST))
            request = reporters[device].request(terms, candidates)
            answer = bytes.fromhex(helper.ask("evaluate", terms, str(device), request))
            message = reporters[device].message(terms, answer, public, key.public_key().public_bytes_raw())
            helper.ask("accept", terms, str(device), message)
            sent.append(ledgers[device].take(epoch, candidates, REPORTS))
            ledgers[device].went(epoch)
        reports += len(sent) * REPORTS
        helper.ask("close", terms)
        for part in helper.ask("parts", terms, 50):
            assert server.ask("receive", terms, bytes.fromhex(part)) == 0
        server.ask("open", terms)
        helper.ask("forget", terms)
        expected = {each: count for each, count in counted(sent).items() if count >= LEAST}
        found = server.ask("counts", terms)
        assert {Measurement.decoded(bytes.fromhex(each)): count for each, count in found.items()} == expected
        opened, nights = opened + len(expected), nights + bool(expected)
    helper.end()
    server.end()
    assert nights > 15
    said = Counter({"reports": reports, "opened": opened, "kills": helper.killed + server.killed})
    print(dict(said))
    assert said["kills"] > 20
