"""The measurement of coverage: the processes that tests start, the sums by room, and the limits."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from programs import TOOLS, program

TOOL = TOOLS / "covered.py"
SUMMARY = ("num_statements", "covered_lines", "num_branches", "covered_branches")


@pytest.fixture(scope="module")
def covered():
    return program("covered")


def report(**files: tuple[int, int, int, int]) -> dict:
    """Coverage's report of `core__spec=(lines, run, branches, taken)` in src/solera/core/leaf.py."""
    return {
        "files": {
            f"src/solera/{name.replace('__', '/')}.py": {"summary": dict(zip(SUMMARY, counts, strict=True))}
            for name, counts in files.items()
        }
    }


def test_a_room_is_the_sum_of_its_files(covered):
    rooms = covered.by_room(report(core__a=(10, 9, 4, 1), core__deep__b=(20, 20, 6, 5), api=(5, 0, 0, 0)))
    assert list(rooms) == ["api", "core"]
    assert covered.percent(rooms["core"]) == pytest.approx(100 * (29 + 6) / 40)
    assert [line.split() for line in covered.table(rooms).splitlines()[1:]] == [
        ["api", "0", "/", "5", "0", "/", "0", "0.0", "%"],
        ["core", "29", "/", "30", "6", "/", "10", "87.5", "%"],
        ["all", "29", "/", "35", "6", "/", "10", "77.8", "%"],
    ]


def test_a_room_below_its_limit_or_missing_is_named(covered):
    good = (90, 81, 10, 9)
    full = dict.fromkeys(("core__a", "engine__a", "privacy__a", "federation__a"), good)
    assert covered.too_little(covered.by_room(report(**full))) == []
    worse = covered.by_room(report(**full | {"engine__a": (90, 81, 10, 8)}))
    assert covered.too_little(worse) == ["engine has 89.0 %, less than 90 %"]
    del full["federation__a"]
    assert len(covered.too_little(covered.by_room(report(**full)))) == 1


@pytest.mark.slow  # reads every file of the package
def test_the_processes_of_a_test_are_measured(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import subprocess, sys\n"
        "def test_it():\n"
        "    subprocess.run([sys.executable, '-m', 'solera', '--version'], check=True)\n"
    )
    outside = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    tests = [str(tmp_path / "test_it.py"), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, TOOL, *tests], capture_output=True, text=True, env=outside, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Nothing else imports __main__, so what is covered there was run by the process.
    assert re.search(r"^__main__ +[1-9]", done.stdout, re.MULTILINE), done.stdout
    assert "CoverageWarning" not in done.stderr
