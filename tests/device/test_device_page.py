"""What docs/guides/device.md tells a person to type works as it stands there."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from letterboxd_export import zipped
from typer.testing import CliRunner

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "device.md").read_text(encoding="utf-8")


def test_a_person_can_follow_the_page(bundled, keys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(bundled("fedslist", whole=False), "movies.bundle")
    shutil.copy(f"{keys}.pub", "publisher.pub")
    zipped(Path("letterboxd-ann.zip"))
    blocks = re.findall(r"<!-- person -->\n```console\n(.*?)```", PAGE, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 14
    said = {}
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line)[1:], env={"COLUMNS": "150"})
        assert done.exit_code == 0, f"{line}\n{done.output}{done.exception}"
        said[line] = done.stdout
    assert "because of" in said["solera device recommend me -k 10 --why"]
    assert "The Birdcage (1996)" in said["solera device match me"]
    assert "seen only" in said["solera device correct me 1 --seen-only"]
