"""A process that ends at any single write, rename, unlink or fsync loses nothing it has acknowledged.

    pytest -m slow -s tests/adversary/test_crash_points.py       # every point; otherwise a sample
    SOLERA_POINTS=30 pytest -m slow -s tests/adversary/test_crash_points.py       # so many of each scenario

The calls are caught below Python, with those of SQLite and of safetensors. A write is cut in half.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from attack import attack
from crash_points import CONTROL, SCENARIOS

from commands import environment

HERE = Path(__file__).parent
POINTS = int(os.environ.get("SOLERA_POINTS", "0"))
SAMPLE = 3  # points of each scenario


@pytest.fixture(scope="session")
def shim(tmp_path_factory) -> Path:
    """The library that ends processes."""
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("shim") / "crash_points.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(HERE / "crash_points.c"), "-ldl"]
    subprocess.run(command, check=True)
    return library


def tried(
    shim: Path, folder: Path, points: int, how: str = "kill", names: Iterable[str] = SCENARIOS
) -> dict[str, dict[str, Any]]:
    """What is left behind at all points of each scenario, or at some of them. One process forks them all."""
    python = os.pathsep.join([str(HERE), str(HERE.parent), environment()["PYTHONPATH"]])
    more = {"LD_PRELOAD": str(shim), "PYTHONPATH": python, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(HERE / "crash_points.py"), str(folder / how), str(points), how, *names]
    done = subprocess.run(words, env=environment() | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def wrong(found: dict[str, dict[str, Any]]) -> str:
    return "\n".join(f"{name}: {each}" for name, one in found.items() for each in one["failed"])


def test_a_sample_of_crash_points(shim, tmp_path):
    for name, found in (sample := tried(shim, tmp_path, SAMPLE)).items():
        assert found["tried"] >= min(SAMPLE, found["points"]) - 1, (
            name
        )  # the number of points varies a little
    assert not wrong(sample), wrong(sample)


@pytest.mark.slow
@attack(
    "crash",
    "Whatever ends a server or a device, at any write: nothing acknowledged is lost, nothing counts twice.",
    before="a kill between two calls of a save lost all progress, silently; a backup could not be restored",
)
def test_every_crash_point(shim, tmp_path, reached):
    """Before: `rounds_done 2 nodes 1` became `rounds_done 0 nodes 0`, with two lines of history."""
    found = tried(shim, tmp_path, POINTS)
    print("\n" + ", ".join(f"{name} {one['tried']}" for name, one in found.items()))
    assert not wrong(found), wrong(found)
    count, of = (sum(one[key] for one in found.values()) for key in ("tried", "points"))
    assert count >= 200
    reached(f"{count:,} of {of:,} points, nothing lost")


@pytest.mark.slow
@attack(
    "crash",
    "A disk that is full from any write on is an error with a next step, and the old state is intact.",
    before="not looked at on devices; one patched call on the server",
)
def test_every_point_on_a_full_disk(shim, tmp_path, reached):
    """Before: `train --out` ended in a traceback; other writes were not tried."""
    found = tried(shim, tmp_path, POINTS, "full")
    assert not wrong(found), wrong(found)
    count, of = (sum(one[key] for one in found.values()) for key in ("tried", "points"))
    reached(f"{count:,} of {of:,} points, nothing lost")


def test_a_folder_that_is_removed_first_is_found(shim, tmp_path):
    """The control: a checkpoint written as version 0.2 did is lost at one of these points."""
    assert "progress.json cannot be read" in wrong(tried(shim, tmp_path, 60, CONTROL, ["save"]))
