"""The image of packaging/Containerfile, built and started: a server, its schedule and two nodes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import yaml
from containers import (
    IMAGE,
    STRICT,
    USER,
    Podman,
    build,
    build_image,
    make_files,
    missing,
    podman,
    wait_until,
)

from solera.federation.operate.processes import free_port

ROOT = Path(__file__).parents[2]
SETTINGS = 'bundle = "films.bundle"\n[schedule]\nevery = "15s"\nsmallest_cohort = 2\n'
# PostgreSQL and nginx are images of others: test_packaging.py has the same with those of this machine
ONE_BOX = ["server", "start", "/data/films", "--keys", "/keys", "--host", "0.0.0.0"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("containers"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.fixture(scope="module")
def image() -> str:
    build()
    return IMAGE


@pytest.fixture
def machine(tmp_path, image):
    with podman(tmp_path) as run:
        yield run


def rounds(machine: Podman, container: str) -> int:
    told = machine("exec", container, "solera", "federation", "status", "/data/films", "--json", check=False)
    return json.loads(told)["rounds"]["done"] if told else 0


def start_node(machine: Podman, folder: Path, number: int, film: str) -> None:
    data = f"--volume={machine.volume(f'solera-test-{number}')}:/data"
    bundle = f"--volume={folder / 'settings'}:/bundle:ro"
    init = (
        "device",
        "init",
        "/data/me",
        "--bundle",
        "/bundle/films.bundle",
        "--key",
        "/bundle/publisher.pub",
    )
    machine("run", "--rm", *STRICT, data, bundle, IMAGE, *init)
    for title in ("Alien", film):
        machine("run", "--rm", *STRICT, data, IMAGE, "device", "add", "/data/me", title)
    keys = f"--volume={folder / 'keys'}:/keys:ro"
    where = (
        "--server",
        "network:8000",
        "--ca",
        "/keys/ca.pem",
        "--key",
        f"/keys/nodes/node-{number}",
        "--join",
    )
    placed = ("--network=solera_default", "--restart=unless-stopped", *STRICT, data, keys)
    machine.start(f"solera-test-{number}", *placed, IMAGE, "node", "start", "/data/me", *where)


def test_the_compose_file_starts_a_federation(tmp_path, machine):
    """Rounds are done, a server that was killed is started again, and the schedule goes on by itself."""
    make_files(tmp_path, "network", SETTINGS)
    (tmp_path / "packaging").mkdir()
    file = tmp_path / "packaging" / "compose.yaml"
    found = yaml.safe_load((ROOT / "packaging" / "compose.yaml").read_text())
    services = found["services"]
    services["network"]["ports"] = [f"127.0.0.1:{free_port()}:8000"]
    for name in ("database", "nginx", "prometheus"):
        del services[name]
    services["server"] |= {"command": ONE_BOX, "environment": {}, "depends_on": ["network"]}
    file.write_text(yaml.safe_dump(found))

    def compose(*words: str) -> str:
        return machine("--project-name", "solera", "--file", file, *words, program="podman-compose")

    try:
        compose("up", "--detach", "network", "server", "serve")
        start_node(machine, tmp_path, 1, "Brazil")
        start_node(machine, tmp_path, 2, "Casablanca")
        wait_until(lambda: rounds(machine, "solera_serve_1") >= 1)
        shown = machine("exec", "solera-test-1", "solera", "device", "outbox", "/data/me", "--json")
        assert json.loads(shown)
        assert machine("exec", "solera_server_1", "id", "-u").strip() == str(USER)
        assert machine("exec", "solera_server_1", "stat", "--format=%a", "/data/films").strip() == "700"

        os.kill(machine.inspect("solera_server_1", ".State.Pid"), signal.SIGKILL)
        done = rounds(machine, "solera_serve_1")
        wait_until(lambda: rounds(machine, "solera_serve_1") >= done + 2)
        assert machine.inspect("solera_server_1", ".RestartCount") == 1

        machine("stop", "--time", 60, "solera_serve_1")
        assert machine.inspect("solera_serve_1", ".State.ExitCode") == 0
    finally:
        print(machine("logs", "solera_server_1", check=False), machine("logs", "solera_serve_1", check=False))
        for name in ("solera-test-1", "solera-test-2"):
            print(machine("logs", name, check=False))
            machine("rm", "--force", "--volumes", "--time", 5, name, check=False)
        compose("down", "--volumes", "--timeout", "10")


def test_no_setting_of_this_machine_is_in_the_image(image, machine):
    """An index's address may hold a password: neither a file nor the image's history has it."""
    found = machine("run", "--rm", "--entrypoint=sh", image, "-c", "cat /etc/pip.conf 2>/dev/null; echo end")
    assert found.strip() == "end"
    described = machine("history", "--no-trunc", image) + machine("inspect", image)
    assert "TORCH=" in described
    for value in build_image.pip_settings().values():
        assert "/" not in value or value not in described
