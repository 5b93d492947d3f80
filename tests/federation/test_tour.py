"""The commands of docs/federation/first-federation.md, in their order, word for word but for the port."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from test_guide import STAYS, solera_in

from solera.federation.operate.processes import Process, free_port

TOUR = (Path(__file__).parents[2] / "docs" / "federation" / "first-federation.md").read_text(encoding="utf-8")
STEPS = [
    line
    for block in re.findall(
        r"^```console\n(.*?)```", TOUR.partition("<!-- run by")[2], re.DOTALL | re.MULTILINE
    )
    for line in block.splitlines()
]


@pytest.mark.slow
def test_the_tour_from_key_to_leaving(
    tmp_path: Path, start: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    port = str(free_port())
    said: dict[str, str] = {}
    for line in STEPS:
        command = line.replace("8000", port)
        words = next((what for begin, what in STAYS.items() if command.startswith(begin)), None)
        if words is not None:
            start(*shlex.split(command)[1:], until=words)
            continue
        said[line] = solera_in(tmp_path, command, timeout=400)
    (rounds,) = (text for line, text in said.items() if line.startswith("solera federation run"))
    assert "2 rounds are done · 4 clients on 3 nodes" in rounds
    assert "For anna" in said["solera device recommend home-1 --user anna -k 3"]
    assert "0 uploads that the server could read" in said["solera device outbox home-1"]
    assert "anna" in said["solera device status home-1"]
