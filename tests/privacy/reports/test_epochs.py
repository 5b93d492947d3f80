"""Epochs with real cryptography: what is opened is what at least T devices have, counted exactly."""

from __future__ import annotations

import random
import sqlite3

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.privacy.reports.helper import Helper
from solera.privacy.reports.measurements import PAIR, Ledger, Measurement, counted, measurements
from solera.privacy.reports.oprf import ELEMENT_BYTES, PROOF_BYTES, ReportsError
from solera.privacy.reports.report import SEALED_BYTES, Terms
from solera.privacy.reports.reporter import Reporter
from solera.privacy.reports.server import Server
from threshold_reports import Federation


def at_least(least: int, reports) -> dict[Measurement, int]:
    return {each: count for each, count in counted(reports).items() if count >= least}


@settings(max_examples=8, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=5), max_size=7), st.integers(2, 4))
def test_an_epoch_opens_the_counts_of_at_least_t_devices(histories, least):
    federation = Federation(least, reports=15)
    done = federation.night(0, {str(number): each for number, each in enumerate(histories)})
    expected = at_least(least, [list(measurements(each, 20)) for each in histories])
    assert federation.server.counts("films") == expected
    assert (done.measurements, done.refused) == (len(expected), 0)
    assert done.reports == (15 * len(histories) if len(histories) >= least else 0)


def test_nights_add_up_and_every_night_has_its_own_threshold():
    """New items, absences and a new device: what at least T devices have to say that night is opened."""
    draw, federation = random.Random(5), Federation(least_devices=2, reports=10)
    histories: dict[str, list[int]] = {f"d{number}": [] for number in range(5)}
    plain = {name: Ledger(sqlite3.connect(":memory:"), "films") for name in [*histories, "new"]}
    total: dict[Measurement, int] = {}
    for epoch in range(6):
        if epoch == 3:
            histories["new"] = [0, 1]
        for each in histories.values():
            each.append(min(draw.randrange(6), draw.randrange(6)))
        there = {name: each for name, each in histories.items() if draw.random() > 0.2}
        federation.night(epoch, there)
        sent = [plain[name].take(epoch, measurements(each, 20), 10) for name, each in there.items()]
        for name in there:
            plain[name].went(epoch)
        expected = at_least(2, sent)
        assert federation.server.counts("films", epoch) == expected
        for measurement, count in expected.items():
            total[measurement] = total.get(measurement, 0) + count
    assert federation.server.counts("films") == total
    assert len(total) > 3


def test_ordered_pairs_are_told_apart():
    federation = Federation(2)
    for device, history in {"a": [1, 2], "b": [1, 2], "c": [2, 1]}.items():
        federation.send(0, device, measurements(history, 9, ordered=True))
    federation.end(0)
    assert {each[1:]: count for each, count in federation.server.counts("films").items()} == {
        (1, 1, 0): 3,
        (2, 2, 0): 3,
        (1, 2, 0): 2,
    }


def test_all_messages_have_the_same_size():
    terms = Terms("films", 0, 3, 8)
    helper, server = Helper(sqlite3.connect(":memory:")), X25519PrivateKey.generate()
    public = helper.begin(terms)
    for device, history in {"nothing": [], "little": [1], "much": list(range(30))}.items():
        reporter = Reporter(Ledger(sqlite3.connect(":memory:"), "films"), 3)
        request = reporter.request(terms, measurements(history, 20))
        answer = helper.evaluate(terms, device, request)
        message = reporter.message(terms, answer, public, server.public_key().public_bytes_raw())
        assert len(request) == 8 * ELEMENT_BYTES
        assert len(answer) == 8 * ELEMENT_BYTES + PROOF_BYTES
        assert len(message) == 8 * SEALED_BYTES == 8 * 139


class KilledError(Exception):
    pass


class Files:
    """Parties that are killed between any two statements that write, and start again from their files."""

    def __init__(self, folder) -> None:
        self.folder, self.left = folder, 10**9
        self.key = X25519PrivateKey.generate()

    def open(self, name: str) -> sqlite3.Connection:
        database = sqlite3.connect(self.folder / name)

        def killed(statement: str) -> None:
            if not statement.lstrip().startswith(("SELECT", "PRAGMA", "CREATE")):
                self.left -= 1
                if self.left < 0:
                    raise KilledError

        class Connection:
            """The real connection, of which one statement never comes."""

            def execute(self, statement, *values):
                killed(statement)
                return database.execute(statement, *values)

            def __enter__(self):
                return database.__enter__()

            def __exit__(self, *failed):
                if not any(failed):
                    try:
                        killed("COMMIT")
                    except KilledError:
                        database.rollback()
                        raise
                return database.__exit__(*failed)

        return Connection()  # type: ignore[return-value]

    def night(self, epoch: int, histories) -> dict[Measurement, int]:
        """What a night does, from whatever is in the files."""
        terms = Terms("films", epoch, 2, 4)
        helper, server = Helper(self.open("helper")), Server(self.open("server"), self.key)
        if not server.counts("films", epoch):
            try:
                public = helper.begin(terms)
                for device, history in histories.items():
                    reporter = Reporter(Ledger(self.open(device), "films"), 2)
                    request = reporter.request(terms, measurements(history, 9))
                    answer = helper.evaluate(terms, device, request)
                    helper.accept(terms, device, reporter.message(terms, answer, public, server.public))
            except ReportsError as refused:
                assert "is not open" in str(refused)
            helper.close(terms)
            for part in helper.parts(terms):
                server.receive(terms, part)
            server.open(terms)
        helper.forget(terms)
        return server.counts("films", epoch)


def test_killed_at_any_statement_nothing_is_lost_or_counted_twice(tmp_path):
    histories = {"a": [1, 2], "b": [2, 1], "c": [2]}
    expected = at_least(2, [list(measurements(each, 9)) for each in histories.values()])
    kills = 0
    for statement in range(0, 90, 4):
        folder = tmp_path / str(statement)
        folder.mkdir()
        files = Files(folder)
        files.left = statement
        try:
            files.night(0, histories)
        except KilledError:
            kills += 1
        files.left = 10**9
        assert files.night(0, histories) == expected
        assert files.night(0, histories) == expected
    assert kills > 10


def test_a_closed_epoch_has_neither_key_nor_senders():
    federation = Federation(2)
    for device in ("a", "b"):
        federation.send(0, device, [Measurement(PAIR, 1, 2)])
    federation.helper.close(federation.terms(0))
    rows = federation.helper._database.execute
    assert rows("SELECT key FROM epochs").fetchall() == [(None,)]
    assert rows("SELECT COUNT(*) FROM devices").fetchone() == (0,)


def test_terms_without_protection_are_refused():
    for wrong in ((1, 10), (301, 10), (5, 0), (5, 5000)):
        with pytest.raises(ReportsError):
            Terms("films", 0, *wrong)
