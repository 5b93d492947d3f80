"""The same model on every engine, also when its parts are killed: SQLite; PostgreSQL, two workers, nginx."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from engines import nginx, postgres
from real import few_nodes

from solera.core.errors import RunError
from solera.federation.common.protocol import PROTOCOL, Packet
from solera.federation.operate.processes import Process
from solera.federation.secure.roster import make_roster
from solera.federation.server.folder import FederationFolder
from solera.federation.server.network import WebNetwork
from solera.federation.web.database import connect, upgrade
from solera.federation.web.store import Message, Store

pytestmark = [
    pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets"),
    pytest.mark.xdist_group("real"),
]
ENGINES = ["sqlite", "postgres"]


def federations(*everyday: tuple[str, bool], slow: tuple[tuple[str, bool], ...] = ()) -> pytest.MarkDecorator:
    """Engines, with masks or without. Each starts ten processes, so every day each test has one of them."""
    others = [pytest.param(each, marks=pytest.mark.slow) for each in slow]
    return pytest.mark.parametrize("real", [*everyday, *others], indirect=True)


def many_boxes(real, root: Path, stack) -> None:
    """Put a federation on PostgreSQL, with two workers behind nginx."""
    real.engine = stack.enter_context(postgres())
    real.database, real.workers, real.socket = real.engine.url, 2, root / "server.sock"
    real.nginx = stack.enter_context(
        nginx(root / "nginx", real.address.port, real.keys, real.folder, real.socket)
    )


@pytest.fixture
def real(tmp_path, monkeypatch, request, key):
    engine, masked = request.param
    with few_nodes(tmp_path, key, monkeypatch, masked=masked, start=False, count=3 if masked else 2) as made:
        if engine == "postgres":
            many_boxes(made, tmp_path, made.stack)
        made.start()
        yield made


@contextmanager
def kept_running(real):
    """The server's own supervision, beside a test."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            real.server.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@federations(("postgres", True), slow=(("postgres", False), ("sqlite", False), ("sqlite", True)))
def test_a_federation_is_the_simulation(real, request):
    masked = request.node.callspec.params["real"][1]
    nodes = len(real.devices)
    real.prepare(rounds=2, min_nodes=nodes, secure_aggregation=masked)
    if masked:
        FederationFolder.open(real.folder).keep_roster(make_roster(real.keys))
    real.run()
    assert [entry["nodes"] for entry in real.history] == [nodes, nodes]
    assert real.difference_from_simulation(2) < 1e-8


@federations(("sqlite", False), slow=(("postgres", False),))
def test_a_coordinator_is_killed_and_the_next_one_goes_on(real, tmp_path):
    real.prepare(rounds=3, min_nodes=2)
    command = [sys.executable, "-m", "solera", "federation", "run", str(real.folder), "--resume"]
    for kill_after in (1, 2):
        process = Process(command, {**os.environ}, tmp_path / "run.log")
        while len(real.history) < kill_after:
            assert process.is_running, process.said()
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.stop()
    real.run()
    assert [entry["round"] for entry in real.history] == [1, 2, 3]
    assert real.difference_from_simulation(3) < 1e-8


@federations(("postgres", False))
def test_workers_and_the_database_are_killed_under_rounds(real):
    real.prepare(rounds=6, min_nodes=2)
    with kept_running(real), ThreadPoolExecutor(1) as pool:
        running = pool.submit(real.run)
        for done in (1, 2, 3):
            while len(real.history) < done and not running.done():
                time.sleep(0.02)
            if done == 2:
                real.engine.kill()
                real.engine.start()
            else:
                for pid in real.server.pids:
                    os.kill(pid, signal.SIGKILL)
        running.result(300)
    assert [entry["round"] for entry in real.history] == [1, 2, 3, 4, 5, 6]
    assert real.difference_from_simulation(6) < 1e-8


@federations(("sqlite", False), slow=(("postgres", True),))
def test_devices_coordinator_and_workers_are_upgraded_while_rounds_go_on(real, monkeypatch, request):
    """Stand-ins for the version before: this one, whose messages say that they are of the one before.

    Masked orders are agreed on as they are, so there the devices alone are of the version before. Masked sums
    are rounded, which adds some 1e-9 a round: there are as many rounds as there are upgrades, and one more.
    """
    masked = request.node.callspec.params["real"][1]
    nodes = len(real.devices)
    rounds = nodes + 2
    spoken = []
    made = WebNetwork._message

    def message(network, device, kind, round_, packet):
        spoken.append(PROTOCOL - 1 if len(real.history) < 2 and not masked else PROTOCOL)
        return made(
            network, device, kind, round_, Packet({**packet.fields, "protocol": spoken[-1]}, packet.arrays)
        )

    def upgraded(node):
        (real.devices[node - 1] / "fault.txt").unlink()
        real.nodes[node].process.stop(60)
        real.start_node(node)

    monkeypatch.setattr(WebNetwork, "_message", message)
    real.prepare(rounds=rounds, min_nodes=nodes, min_replies=1.0, attempts=20, secure_aggregation=masked)
    if masked:
        FederationFolder.open(real.folder).keep_roster(make_roster(real.keys))
    for node in range(1, nodes + 1):
        real.fault(node, "former")
    with kept_running(real), ThreadPoolExecutor(1) as pool:
        running = pool.submit(real.run)
        upgrades = [partial(upgraded, node) for node in range(1, nodes + 1)]
        for done, step in enumerate([upgrades[0], real.server.replace, *upgrades[1:]], start=1):
            while len(real.history) < done and not running.done():
                time.sleep(0.02)
            step()
        running.result(300)
    assert all((device / "was-former").exists() for device in real.devices)
    assert set(spoken) == ({PROTOCOL} if masked else {PROTOCOL - 1, PROTOCOL})
    assert [entry["nodes"] for entry in real.history] == [nodes] * rounds
    assert not any(real.reasons(node) & {"protocol", "malformed", "faulty"} for node in real.nodes)
    assert real.difference_from_simulation(rounds) < 1e-8


@pytest.mark.parametrize("engine", ENGINES)
def test_a_coordinator_that_was_replaced_can_do_nothing(tmp_path, engine):
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'state.db'}"
        if engine == "postgres":
            url = stack.enter_context(postgres()).url
        upgrade(url)
        store = Store(connect(url))
        stack.callback(store.close)
        message = Message(7, "train", "1", b"", "")
        first, second = store.take_over(), store.take_over()
        assert second > first
        assert store.send([message], fence=second, seconds=60)  # the control: the newer one can
        with pytest.raises(RunError, match="another command coordinates"):
            store.send([message], fence=first, seconds=60)
        assert store.collect(first) == []
