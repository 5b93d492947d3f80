"""The commands of docs/federation/deployment.md, in their order, word for word."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import environment
from solera.federation.operate.processes import Process, free_port

GUIDE = (Path(__file__).parents[2] / "docs" / "federation" / "deployment.md").read_text(encoding="utf-8")


def commands(section: str) -> list[str]:
    """The lines of all console blocks of a section after a marker."""
    text = re.search(rf"^## {re.escape(section)}.*?(?=^## |\Z)", GUIDE, re.DOTALL | re.MULTILINE)
    assert text, section
    _, _, marked = text[0].partition("<!-- steps")
    blocks = re.findall(r"^ *```console\n(.*?)```", marked, re.DOTALL | re.MULTILINE)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


STEPS = [
    line
    for section in (
        "Step by step",
        "Keys and certificates",
        "Change over time",
    )
    for line in commands(section)
]
STAYS = {"solera server start": "nodes are online", "solera node start": "takes part"}


def solera_in(folder: Path, line: str, timeout: float) -> str:
    """What a line of the guide prints."""
    shell = line.replace("solera ", f"{shlex.quote(sys.executable)} -m solera ", 1)
    done = subprocess.run(
        shell,
        shell=True,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("SOLERA_DATA"), reason="SOLERA_DATA is not set")
def test_quick_start(tmp_path: Path):
    found = re.search(r"<!-- quick start.*?```console\n(.*?)\n```", GUIDE, re.DOTALL)
    assert found
    said = solera_in(tmp_path, found[1], timeout=300)
    assert "after 5 rounds" in said
    assert "What left the device of user 1" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_guide_from_key_to_new_items(
    tmp_path: Path, start: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    port, metrics = str(free_port()), str(free_port())
    said: dict[str, str] = {}
    for line in STEPS:
        command = line.replace("8000", port).replace("9464", metrics).replace("$SERVER", "localhost")
        words = next((what for begin, what in STAYS.items() if command.startswith(begin)), None)
        if command.startswith("export "):
            continue
        if words is not None:
            start(*shlex.split(command)[1:], until=words)
            continue
        said[line] = solera_in(tmp_path, command, timeout=120)
    run = said["solera federation run films --bundle films.bundle --nodes 2 --rounds 2"]
    assert "2 rounds are done · 3 clients on 2 nodes" in run
    assert "For anna" in said["solera device recommend home-1 --user anna -k 3"]
    assert "could read, 0 uploads hidden in sums" in said["solera device outbox home-1"]
    assert "the federation has catalogue version 2" in said["solera device status home-1"]
    assert (
        "5 rounds are done · 3 clients on 2 nodes" in said["solera federation run films --resume --rounds 5"]
    )
    assert said["solera server register films visitor.pub"].strip().endswith("registered")
    assert said["solera server revoke films visitor.pub"].strip().endswith("revoked")


def test_every_reason_and_every_metric_is_explained():
    from prometheus_client import generate_latest

    from solera.federation.common.protocol import Reason
    from solera.federation.operate.metrics import Exporter

    folder = Path(__file__).parents[2] / "docs" / "federation"
    operations, runbook = ((folder / f"{name}.md").read_text("utf-8") for name in ("operations", "runbook"))
    assert [reason for reason in Reason if f"`{reason}`" not in runbook] == []
    text = generate_latest(Exporter(Path("none")).registry).decode()
    names = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    shown = operations.replace("`…_users_wanted`", "solera_last_round_users_wanted")
    shown = shown.replace("`…_nodes`", "solera_last_round_nodes")
    assert len(names) > 12
    assert [name for name in names if name not in shown] == []
