"""Service units, the compose file and Prometheus' settings: what they call exists, and they are valid."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from solera.cli import app

PACKAGING = Path(__file__).parents[1] / "packaging"
UNITS = sorted([*PACKAGING.glob("*.service"), *PACKAGING.glob("*.timer")])


def check_command(words: list[str]) -> None:
    """Every command and every option of a command line of Solera's is one that there is."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = words.pop(0)
        assert name in command.commands, name
        command = command.commands[name]
    known = {name for each in command.params for name in each.opts}
    given = {word for word in words if word.startswith("-")}
    assert given <= known, given - known


@pytest.mark.parametrize("unit", [each for each in UNITS if each.suffix == ".service"], ids=lambda p: p.name)
def test_units_call_commands_that_exist(unit):
    lines = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    assert len(lines) == 1
    words = shlex.split(lines[0].removeprefix("ExecStart="))
    if words[0] == "/bin/sh":
        words = shlex.split(words[2].removeprefix("exec "))
    assert words.pop(0) == "/opt/solera/bin/solera"
    check_command(words)


def verify(folder: Path) -> str:
    files = sorted(map(str, folder.iterdir()))
    done = subprocess.run(
        ["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path):
    """With programs and a user that exist here; a misspelt key is noticed."""
    for unit in UNITS:
        text = unit.read_text().replace("/opt/solera/bin/solera", "/bin/true")
        (tmp_path / unit.name).write_text(text.replace("User=solera", "User=root"))
    assert verify(tmp_path) == ""
    wrong = tmp_path / "solera-serve.service"
    wrong.write_text(wrong.read_text().replace("KillMode=", "KilMode="))
    assert "KilMode" in verify(tmp_path)


def test_the_compose_file_calls_commands_and_names_files_that_exist():
    found = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
    services = found["services"]
    for service in services.values():
        if service["image"] == "solera":
            check_command(list(service["command"]))
        network = service.get("network_mode", "service:server").removeprefix("service:")
        assert {network, *service.get("depends_on", ())} <= services.keys()
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (PACKAGING / source).is_file(), source
            elif not source.startswith("../"):
                assert source in found["volumes"], source


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (apt-get install prometheus)")
def test_prometheus_takes_its_settings_and_rules():
    config = PACKAGING / "monitoring" / "prometheus.yml"
    command = ["promtool", "check", "config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "11 rules found" in done.stdout
