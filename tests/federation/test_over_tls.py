"""A federation as an operator meets it: real servers, real nodes, TLS, and who is turned away."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from test_federation_metrics import scrape

import in_process
from commands import below, is_running, solera, wait_for
from one_process import fill
from solera.core.errors import DeployError
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.publish import start as new_bundle
from solera.federation.common.address import Address
from solera.federation.common.authority import make_keys
from solera.federation.common.connection import trust
from solera.federation.node.line import Line, read_key
from solera.federation.operate import serve as rounds
from solera.federation.operate import server as serving
from solera.federation.operate.metrics import serving as metrics_of
from solera.federation.operate.processes import Process, check_port, free_port


class Federation(NamedTuple):
    folder: Path
    address: Address
    server: Process
    devices: list[Path]
    metrics: int  # the port


@pytest.fixture(scope="module")
def bundle(key: Path, catalogue, tmp_path_factory) -> Bundle:
    path = tmp_path_factory.mktemp("films and books") / "films.bundle"
    return new_bundle("fedmf", catalogue, path, key, options={"embedding_size": 4})


@pytest.fixture(scope="module")
def federation(keys: Path, bundle: Bundle, histories, start: Callable[..., Process]) -> Federation:
    """A server and two nodes, started by their commands."""
    root = bundle.path.parent
    port, metrics = free_port(), free_port()
    ports = ("--port", port, "--metrics-port", metrics)
    server = start("server", "start", root / "server", "--keys", keys, *ports, until="of 2 nodes")
    devices = [root / "device 1", root / "device 2"]
    for number, device in enumerate(devices, start=1):
        made = Device.create(device, bundle)
        fill(made, {f"u{number}": [str(item) for item in histories[number]]})
        made.close()
        access = ("--ca", keys / "ca.pem", "--key", keys / "nodes" / f"node-{number}")
        start("node", "start", device, "--server", f"localhost:{port}", *access, "--join", until="takes part")
    return Federation(root / "server", Address("127.0.0.1", port, keys / "ca.pem"), server, devices, metrics)


@pytest.fixture
def spare(bundle: Bundle, tmp_path: Path) -> Path:
    """A device that takes part in nothing."""
    Device.create(tmp_path / "spare", bundle).close()
    return tmp_path / "spare"


def refused(*args: object) -> str:
    """Both lines of an error, after making sure there are two."""
    done = in_process.solera(*args)
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["error:", "next:"], done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.slow
def test_a_run_by_its_command(federation: Federation, bundle: Bundle):
    run = ("federation", "run", federation.folder, "--bundle", bundle.path)
    done = solera(*run, "--rounds", 1, "--json")
    last = json.loads(done.stdout)["last_round"]
    assert (last["round"], last["nodes"], last["clients"], last["rejected"]) == (1, 2, 2, {})
    wait_for(federation.server, "2 of 2 nodes are online")
    shown = solera("device", "recommend", federation.devices[0], "--user", "u1", "-k", 3, "--json")
    assert len(json.loads(shown.stdout)["items"]) == 3
    assert "already contains a federation" in refused(*run)


def test_a_key_nobody_registered_is_refused_until_it_is(
    federation: Federation, foreign_keys: Path, spare: Path, start: Callable[..., Process]
):
    key = foreign_keys / "nodes" / "node-1"
    node = ("node", "start", spare, "--server", federation.address, "--ca", federation.address.ca)
    said = refused(*node, "--key", key)
    assert f"the server does not know the key {key}" in said
    assert f"solera server register FOLDER {key}.pub" in said
    done = in_process.solera("server", "register", federation.folder, f"{key}.pub")
    assert done.stdout.strip().endswith("registered"), done.stderr
    again = in_process.solera("server", "register", federation.folder, f"{key}.pub")
    assert again.stdout.split()[-2:] == ["known", "already"]
    start(*node, "--key", key, until="takes part").stop()


def test_a_key_that_is_in_use(federation: Federation, keys: Path, spare: Path):
    key = keys / "nodes" / "node-1"
    access = ("--ca", federation.address.ca, "--key", key)
    said = refused("node", "start", spare, "--server", federation.address, *access)
    assert f"a node with the key {key} is already connected" in said
    assert "register" not in said


def test_a_certificate_of_a_foreign_authority_is_refused(
    federation: Federation, keys: Path, foreign_keys: Path, spare: Path
):
    key = keys / "nodes" / "node-1"
    foreign = foreign_keys / "ca.pem"
    said = refused("node", "start", spare, "--server", federation.address, "--ca", foreign, "--key", key)
    assert "certificate that was not issued by" in said
    wrong = replace(federation.address, ca=foreign)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):  # without any check before
        httpx.get(f"{wrong.url}/health", verify=trust(wrong))
    assert httpx.get(f"{wrong.url}/health", verify=trust(federation.address)).is_success


def test_plain_http_is_refused(federation: Federation, spare: Path):
    said = refused("node", "start", spare, "--server", federation.address, "--insecure")
    assert "requires TLS" in said
    assert "--ca and --key" in said
    line = http.client.HTTPConnection("127.0.0.1", federation.address.port, timeout=10)
    line.request("GET", "/health")
    with pytest.raises((http.client.HTTPException, ConnectionResetError)):
        line.getresponse()


@pytest.mark.slow
def test_an_expired_server_certificate_is_refused(tmp_path: Path, spare: Path, monkeypatch):
    expired = tmp_path / "expired"
    make_keys(expired, 1, days=30, now=datetime.now(UTC) - timedelta(days=100))
    said = refused("server", "start", tmp_path / "f", "--keys", expired, "--port", free_port())
    assert "server.pem expired on" in said
    assert f"solera federation keys {expired}" in said

    monkeypatch.setattr(serving, "check_server", lambda keys: None)
    monkeypatch.setattr(serving.Server, "wait", lambda server: None)
    address = Address("127.0.0.1", free_port(), expired / "ca.pem")
    with serving.running(tmp_path / "f", address, expired):
        access = ("--ca", expired / "ca.pem", "--key", expired / "nodes" / "node-1")
        wait_for_port(address.port)
        said = refused("node", "start", spare, "--server", address, *access)
    assert "has expired" in said


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise TimeoutError


def shown(address: Address) -> datetime:
    """When the certificate that new connections see expires."""
    context = ssl.create_default_context(cafile=address.ca)
    with (
        socket.create_connection((address.host, address.port)) as line,
        context.wrap_socket(line, server_hostname=address.host) as secure,
    ):
        found = secure.getpeercert()
    assert found
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(found["notAfter"])), UTC)


def test_a_new_certificate_is_shown_without_a_restart(tmp_path: Path, monkeypatch):
    """Connections that were there stay; new ones see it within seconds."""
    keys = tmp_path / "keys"
    make_keys(keys, 1, days=2)
    address = Address("127.0.0.1", free_port(), keys / "ca.pem")
    with serving.running(tmp_path / "f", address, keys) as running:
        former, pids = shown(address), running.pids
        line = Line(address, read_key(keys / "nodes" / "node-1"))
        line.join()
        for name in ("server.pem", "server.key"):
            (keys / name).unlink()
        make_keys(keys, 1, days=200)
        until = time.monotonic() + 30
        while shown(address) == former and time.monotonic() < until:
            time.sleep(0.2)
        assert shown(address) - former > timedelta(days=100)
        line.join()
        assert running.pids == pids
        line.leave()


def test_a_port_in_use(federation: Federation, keys: Path, tmp_path: Path):
    start = ("server", "start", tmp_path, "--keys", keys)
    for port, given in (
        (federation.address.port, ()),
        (federation.metrics, ("--port", free_port(), "--metrics-port", federation.metrics)),
    ):
        said = refused(*start, *(given or ("--port", port)))
        assert f"cannot listen on 127.0.0.1 port {port}" in said
    with pytest.raises(DeployError, match="cannot listen"), metrics_of(tmp_path, federation.metrics):
        pass


def test_it_tells_prometheus(federation: Federation):
    assert f"http://127.0.0.1:{federation.metrics}/metrics" in federation.server.said()
    found = scrape(federation.metrics)
    assert found["solera_nodes", "registered"] >= 2
    assert found["solera_nodes", "online"] == 2
    assert found["solera_rounds_done", ""] == 0


def test_files_of_a_node_are_for_its_user_alone(federation: Federation):
    for device in federation.devices:
        found = [device / "network", *(device / "network").rglob("*")]
        assert {path.name: path.stat().st_mode & 0o077 for path in found} == {path.name: 0 for path in found}


def test_a_server_that_is_asked_to_end_leaves_nothing_behind(federation: Federation):
    """Last in the file: the others need the server."""
    server = federation.server
    started = below(server.pid)
    assert started  # its worker
    os.kill(server.pid, signal.SIGTERM)
    end = time.monotonic() + 90
    while server.is_running and time.monotonic() < end:
        time.sleep(0.1)
    assert "the server ends" in server.said()
    assert [pid for pid in started if is_running(pid)] == []
    check_port("127.0.0.1", federation.address.port)
    with pytest.raises(DeployError, match="no server answers"):
        rounds.run(federation.folder, print)


@pytest.mark.slow
def test_a_node_before_its_server(spare: Path, keys: Path, start: Callable[..., Process], tmp_path: Path):
    """It waits, and joins when the server is there."""
    port = free_port()
    access = ("--ca", keys / "ca.pem", "--key", keys / "nodes" / "node-1")
    node = start("node", "start", spare, "--server", f"127.0.0.1:{port}", *access, until="waiting for it")
    assert "no server answers" in node.said()
    start("server", "start", tmp_path / "server", "--keys", keys, "--port", port, until="of 2 nodes")
    wait_for(node, "takes part")
