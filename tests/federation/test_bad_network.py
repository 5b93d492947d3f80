"""A federation over bad lines; and the line itself, which has to be as bad as it says."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
from bad_network import bad_line
from real import RealFederation, people

from commands import environment
from solera.federation.common.authority import make_keys


@pytest.fixture
def echo() -> Iterator[int]:
    """A port that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(connection: socket.socket) -> None:
            with connection, suppress(ConnectionError):
                while data := connection.recv(65536):
                    connection.sendall(data)

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]


def there_and_back(port: int, size: int = 1, timeout: float = 10) -> float:
    """Seconds until as many bytes have come back."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as line:
        began = time.monotonic()
        line.sendall(b"x" * size)
        left = size
        while left:
            found = line.recv(65536)
            assert found, "the line is broken"
            left -= len(found)
        return time.monotonic() - began


def test_delay_is_waited_for_twice(echo):
    with bad_line(echo, delay=0.1) as line:
        assert 0.2 <= there_and_back(line.port) < 2
        assert line.carried == 2


def test_rate_and_loss(echo):
    with bad_line(echo, bytes_per_second=50_000) as line:
        assert there_and_back(line.port, 14_000) >= 0.28
    with bad_line(echo, loss=1.0, lost_for=0.15) as line:
        assert there_and_back(line.port) >= 0.3


def test_nothing_passes_a_cut_line_until_it_is_mended(echo):
    with bad_line(echo) as line:
        line.is_cut = True
        with pytest.raises(TimeoutError):
            there_and_back(line.port, timeout=0.3)
        line.is_cut = False
        assert there_and_back(line.port) < 2


def test_a_reset_breaks_connections(echo):
    with bad_line(echo) as line, socket.create_connection(("127.0.0.1", line.port), timeout=5) as mine:
        mine.sendall(b"x")
        assert mine.recv(1) == b"x"
        line.reset()
        with pytest.raises(ConnectionResetError):
            mine.recv(1)


@pytest.mark.slow
@pytest.mark.xdist_group("real")
@pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets")
def test_no_bad_line_needs_a_hand(tmp_path, key, monkeypatch):
    """Far and slow; cut off for 20 s; reset again and again. Three rounds of this, then two in peace."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    make_keys(tmp_path / "keys", 3)
    with ExitStack() as stack:
        made = RealFederation(
            tmp_path, keys=tmp_path / "keys", key=key, data=people(), method="fedmf", users=[5, 5, 5]
        )
        stack.enter_context(made)
        far, cut, unsteady = (
            stack.enter_context(bad_line(made.address.port, **what))
            for what in ({"delay": 0.2, "bytes_per_second": 125_000, "loss": 0.05}, {}, {})
        )
        for number, line in enumerate((far, cut, unsteady), start=1):
            made.ways[number] = replace(made.address, port=line.port)
        made.start()
        made.prepare(rounds=5, min_nodes=3, deadline=60, patience=300)
        ended = threading.Event()

        def disturb() -> None:
            began = time.monotonic()
            while len(made.history) < 3 and not ended.wait(3):
                unsteady.reset()
                cut.is_cut = 5 < time.monotonic() - began < 25
            cut.is_cut = False

        thread = threading.Thread(target=disturb, daemon=True)
        thread.start()
        try:
            made.run()
        finally:
            ended.set()
            thread.join()
        assert unsteady.resets >= 3
        assert [entry["round"] for entry in made.history] == [1, 2, 3, 4, 5]
        assert made.history[-1]["clients"] == 15, "the last disturbance may still reach the round before"
        taken = [event["sha256"] for event in made.events if event["event"] == "taken"]
        assert len(taken) == len(set(taken)), "an upload was counted twice"
        assert sum(entry["clients"] for entry in made.history) == 5 * len(taken)
        lost = {event["node"] for event in made.events if event["event"] == "rejected"}
        assert made.nodes[1].node_id not in lost, "a slow line loses nothing"
