"""The units under a real systemd, in a container of the image: a round, `kill -9`, a backup, a clean stop."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from containers import IMAGE, Podman, build, make_files, missing, podman, wait_until

PACKAGING = Path(__file__).parents[2] / "packaging"
HOST = "recommender.example.org"  # of solera-node.service
SETTINGS = 'bundle = "films.bundle"\n[schedule]\nevery = "15s"\nsmallest_cohort = 1\n'
WITH_SYSTEMD = f"""
FROM {IMAGE}
USER root
RUN apt-get update && apt-get install -y --no-install-recommends systemd && rm -rf /var/lib/apt/lists/*
ENTRYPOINT ["/lib/systemd/systemd"]
STOPSIGNAL SIGRTMIN+3
"""
# What the comments of the units ask for beforehand; /made has the keys and the bundle
BEFOREHAND = """
set -e
cp /packaging/*.service /packaging/*.timer /etc/systemd/system/
mkdir /etc/solera /var/lib/solera
cd /made && cp -a keys settings/serve.toml settings/films.bundle settings/publisher.pub /etc/solera/
cp -a keys/ca.pem keys/nodes/node-1 /etc/solera/
chown -R solera: /etc/solera /var/lib/solera
systemctl daemon-reload
"""
ME = "/var/lib/solera/me"
LONG_RUNNING = ("solera-server", "solera-serve", "solera-node")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("containers"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


class Systemd:
    """One container whose first process is systemd."""

    name = "solera-test-systemd"

    def __init__(self, machine: Podman, folder: Path) -> None:
        self.machine = machine
        (folder / "Containerfile").write_text(WITH_SYSTEMD)
        file = f"--file={folder / 'Containerfile'}"
        machine(
            "build", "--network=host", "--quiet", "--tag=localhost/solera-systemd", file, folder, seconds=900
        )
        machine.start(
            self.name,
            *("--systemd=always", "--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined"),
            *(
                f"--add-host={HOST}:127.0.0.1",
                f"--volume={PACKAGING}:/packaging:ro",
                f"--volume={folder}:/made:ro",
            ),
            "localhost/solera-systemd",
        )
        wait_until(lambda: self.root("systemctl", "is-system-running", check=False).strip() == "running")
        self.root("sh", "-c", BEFOREHAND)

    def root(self, *words: str, check: bool = True) -> str:
        return self.machine("exec", self.name, *words, check=check)

    def solera(self, *words: str, check: bool = True) -> str:
        """A command of the units' user."""
        return self.machine("exec", "--user=solera", self.name, "solera", *words, check=check)

    def shown(self, unit: str, *names: str) -> list[str]:
        """Properties of a unit."""
        lines = self.root("systemctl", "show", *(f"--property={name}" for name in names), unit).splitlines()
        found = dict(line.split("=", 1) for line in lines)
        return [found[name] for name in names]

    def is_restarted(self, unit: str) -> bool:
        return self.shown(unit, "NRestarts", "ActiveState") == ["1", "active"]

    def rounds(self) -> int:
        told = self.solera("federation", "status", "/var/lib/solera/films", "--json", check=False)
        return json.loads(told)["rounds"]["done"] if told else 0

    def federations(self) -> list[dict[str, str]]:
        """Those that have asked for the device."""
        return json.loads(self.solera("device", "status", ME, "--json"))["federations"]


@pytest.fixture
def systemd(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    make_files(made, HOST, SETTINGS)
    build()
    with podman(tmp_path) as machine:
        system = Systemd(machine, made)
        yield system
        print(system.root("journalctl", "--no-pager", "--unit=solera-*", check=False))


def test_the_units_run_a_federation(systemd):
    """The image has Solera where the units look for it, and their user."""
    key = ("--bundle", "/etc/solera/films.bundle", "--key", "/etc/solera/publisher.pub")
    systemd.solera("device", "init", ME, *key)
    systemd.solera("device", "add", ME, "Alien")
    systemd.solera("device", "add", ME, "Brazil")
    systemd.root("systemctl", "enable", "--now", *LONG_RUNNING, "solera-backup.timer")
    wait_until(systemd.federations, 600)
    systemd.solera("device", "join", ME, systemd.federations()[0]["id"])
    wait_until(lambda: systemd.rounds() >= 1, 300)

    for unit in LONG_RUNNING:
        [pid] = systemd.shown(unit, "MainPID")
        assert systemd.root("stat", "--format=%U", f"/proc/{pid}").strip() == "solera"
        systemd.root("sh", "-c", f"kill -9 {pid}")
        wait_until(partial(systemd.is_restarted, unit))
        assert systemd.shown(unit, "MainPID") != [pid]
    done = systemd.rounds()
    wait_until(lambda: systemd.rounds() >= done + 1, 600)

    systemd.root("systemctl", "start", "solera-backup")
    [backup] = systemd.root("sh", "-c", "stat --format='%U %a' /var/lib/solera/films-*.tar.gz").splitlines()
    assert backup == "solera 600"
    systemd.root("systemctl", "stop", *LONG_RUNNING)
    for unit in LONG_RUNNING:
        assert systemd.shown(unit, "Result", "ActiveState") == ["success", "inactive"], unit
