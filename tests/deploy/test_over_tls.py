"""A federation as an operator meets it: real servers, real nodes, TLS, and who is turned away."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from test_federation_metrics import scrape

import in_process
from commands import below, environment, is_running, solera, wait_for
from federation import fill
from solera.core.errors import DeployError
from solera.deploy.common import flower
from solera.deploy.common.authority import make_keys
from solera.deploy.common.credential import write_token
from solera.deploy.common.address import Address
from solera.deploy.operate import submit
from solera.deploy.operate.metrics import serving
from solera.deploy.operate.processes import Process, check_port, free_port
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.publish import start as new_bundle


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


def bare_node_says(folder: Path, address: Address, *options: object) -> str:
    """What Flower's own program says and dies of, without any of Solera's checks before it."""
    command = ["flower-supernode", "--server", str(address), "--port", str(free_port())]
    command += ["--max-retries", "0", *map(str, options)]
    node = Process(command, flower.environment(folder), folder / "log")
    try:
        end = time.monotonic() + 120
        while node.is_running and time.monotonic() < end:
            time.sleep(0.1)
        assert not node.is_running
        return node.said()
    finally:
        node.stop()


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


def test_a_failed_run_is_an_error_with_a_next_step(federation: Federation, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    with pytest.raises(DeployError, match="failed") as error:
        submit.run(federation.folder, print, server_app="failing_app:server")
    assert "the cat sat on the server" in error.value.message
    assert "--resume" in error.value.hint
    (log,) = [
        path for path in (federation.folder / "flower").glob("run-*.log") if path.name in error.value.hint
    ]
    assert "Traceback" in log.read_text()


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


@pytest.mark.slow
def test_flowers_own_commands_show_the_token_too(federation: Federation):
    home = flower.home_of(federation.folder)
    command = ["flwr", "supernode", "list", flower.CONNECTION, "--format", "json"]

    def listed() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=flower.environment(home), capture_output=True, text=True, check=False
        )

    assert len(json.loads(listed().stdout)["nodes"]) >= 2
    kept = home / "credentials.yaml"
    text = kept.read_text()
    kept.unlink()
    try:
        assert json.loads(listed().stdout)["success"] is False
    finally:
        kept.write_text(text)


def test_a_certificate_of_a_foreign_authority_is_refused(
    federation: Federation, keys: Path, foreign_keys: Path, tmp_path: Path, spare: Path
):
    key = keys / "nodes" / "node-1"
    foreign = foreign_keys / "ca.pem"
    said = refused("node", "start", spare, "--server", federation.address, "--ca", foreign, "--key", key)
    assert "certificate that was not issued by" in said
    options = ("--root-certificates", foreign, "--auth-supernode-private-key", key)
    assert "CERTIFICATE_VERIFY_FAILED" in bare_node_says(tmp_path, federation.address, *options)


def test_plain_http_is_refused(federation: Federation, spare: Path):
    said = refused("node", "start", spare, "--server", federation.address, "--insecure")
    assert "requires TLS" in said
    assert "--ca and --key" in said
    line = http.client.HTTPConnection("127.0.0.1", federation.address.port, timeout=10)
    line.request("GET", "/health")
    with pytest.raises((http.client.HTTPException, ConnectionResetError)):
        line.getresponse()


def test_other_machines_reach_the_nodes_part_alone(federation: Federation):
    """The SuperLink believes a proxy on its own machine who the caller is."""

    def status(path: str, caller: str) -> int:
        context = ssl.create_default_context(cafile=federation.address.ca)
        line = http.client.HTTPSConnection("127.0.0.1", federation.address.port, context=context)
        line.request("POST", path, headers={"X-Forwarded-For": caller})
        return line.getresponse().status

    for path in ("/v1/control/list-nodes", "/v1/control/start-run", "/v1/runtime/acquire-task"):
        assert status(path, "192.0.2.7") == 403
        assert status(path, "no address") == 403
        assert status(path, "127.0.0.1") != 403
    assert status("/v1/fleet/pull-messages", "192.0.2.7") != 403


@pytest.mark.slow
def test_an_expired_server_certificate_is_refused(tmp_path: Path, spare: Path):
    expired = tmp_path / "expired"
    make_keys(expired, 1, days=30, now=datetime.now(UTC) - timedelta(days=100))
    said = refused("server", "start", tmp_path / "f", "--keys", expired, "--port", free_port())
    assert "server.pem expired on" in said
    assert f"solera federation keys {expired}" in said

    address = Address("127.0.0.1", free_port(), expired / "ca.pem")
    home = tmp_path / "f" / "flower"
    write_token(home, str(address), new=True)
    server = Process(
        flower.superlink(home, address, expired), flower.environment(home), tmp_path / "superlink.log"
    )
    try:
        wait_for(server, "Uvicorn running")
        access = ("--ca", expired / "ca.pem", "--key", expired / "nodes" / "node-1")
        said = refused("node", "start", spare, "--server", address, *access)
        assert "has expired" in said
    finally:
        server.stop()


def test_a_port_in_use(federation: Federation, keys: Path, tmp_path: Path):
    start = ("server", "start", tmp_path, "--keys", keys)
    for port, given in (
        (federation.address.port, ()),
        (federation.metrics, ("--port", free_port(), "--metrics-port", federation.metrics)),
    ):
        said = refused(*start, *(given or ("--port", port)))
        assert f"cannot listen on 127.0.0.1 port {port}" in said
    with pytest.raises(DeployError, match="cannot listen"), serving(tmp_path, federation.metrics):
        pass


def test_it_tells_prometheus(federation: Federation):
    assert f"http://127.0.0.1:{federation.metrics}/metrics" in federation.server.said()
    found = scrape(federation.metrics)
    assert found["solera_nodes", "registered"] >= 2
    assert found["solera_nodes", "online"] == 2
    assert found["solera_rounds_done", ""] == 0


def test_a_server_that_is_asked_to_end_leaves_nothing_behind(federation: Federation):
    """Last in the file: the others need the server."""
    server = federation.server
    started = below(server.pid)
    assert len(started) >= 2  # the SuperLink and its SuperExec, which has a session of its own
    os.kill(server.pid, signal.SIGTERM)
    end = time.monotonic() + 90
    while server.is_running and time.monotonic() < end:
        time.sleep(0.1)
    assert "the server ends" in server.said()
    assert [pid for pid in started if is_running(pid)] == []
    check_port("127.0.0.1", federation.address.port)
    with pytest.raises(DeployError, match="no server answers"):
        submit.run(federation.folder, print)


@pytest.mark.slow
def test_a_node_before_its_server(spare: Path, keys: Path, start: Callable[..., Process], tmp_path: Path):
    """It waits, and joins when the server is there."""
    port = free_port()
    access = ("--ca", keys / "ca.pem", "--key", keys / "nodes" / "node-1")
    node = start("node", "start", spare, "--server", f"127.0.0.1:{port}", *access, until="waiting for it")
    assert "no server answers" in node.said()
    start("server", "start", tmp_path / "server", "--keys", keys, "--port", port, until="of 2 nodes")
    wait_for(node, "takes part")
