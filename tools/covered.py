"""Run tests under coverage, the processes they start included, and print lines and branches by room.

python tools/covered.py                     the everyday suite; fails if a room in LIMITS has too little
python tools/covered.py tests/core -x       pytest's own arguments: what these tests alone cover
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
EVERYDAY = ("-q", "-n", "2", "--dist", "worksteal", "-m", "not slow")
LIMITS = {"core": 90, "engine": 90, "privacy": 90, "federation": 90}  # percent of lines and branches together
COUNTED = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def measure(arguments: tuple[str, ...]) -> tuple[int, dict[str, Any]]:
    """Pytest's exit code, and coverage's JSON report."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COVERAGE_FILE": f"{folder}/.coverage"}
        command = [sys.executable, "-m", "coverage"]
        tested = subprocess.run(
            [*command, "run", "-m", "pytest", *arguments], env=environment, cwd=ROOT, check=False
        )
        subprocess.run([*command, "combine", "--quiet"], env=environment, cwd=ROOT, check=True)
        report = Path(folder) / "report.json"
        subprocess.run([*command, "json", "--quiet", "-o", report], env=environment, cwd=ROOT, check=True)
        return tested.returncode, json.loads(report.read_text(encoding="utf-8"))


def by_room(report: dict[str, Any]) -> dict[str, Counter[str]]:
    """Lines and branches of every room: a folder of the package, or a file beside the folders."""
    rooms: dict[str, Counter[str]] = {}
    for file, found in report["files"].items():
        room = file.partition("solera/")[2].split("/")[0].removesuffix(".py")
        rooms.setdefault(room, Counter()).update({key: found["summary"][key] for key in COUNTED})
    return dict(sorted(rooms.items()))


def percent(room: Counter[str]) -> float:
    """Lines and branches together, as in coverage's own total."""
    there = room["num_statements"] + room["num_branches"]
    return 100 * (room["covered_lines"] + room["covered_branches"]) / there if there else 100.0


def table(rooms: dict[str, Counter[str]]) -> str:
    """One line for each room, and one for all."""
    total = sum(rooms.values(), Counter())
    lines = [f"{'room':<12}{'lines':>16}{'branches':>16}{'together':>10}"]
    for name, room in [*rooms.items(), ("all", total)]:
        run = f"{room['covered_lines']:,} / {room['num_statements']:,}"
        taken = f"{room['covered_branches']:,} / {room['num_branches']:,}"
        lines.append(f"{name:<12}{run:>16}{taken:>16}{percent(room):>8.1f} %")
    return "\n".join(lines)


def too_little(rooms: dict[str, Counter[str]]) -> list[str]:
    """What is wrong with the rooms that have a limit."""
    return [
        f"{name} has {percent(rooms.get(name, Counter())):.1f} %, less than {limit} %"
        for name, limit in LIMITS.items()
        if name not in rooms or percent(rooms[name]) < limit
    ]


def main(*arguments: str) -> int:
    """Measure, print, and judge the everyday suite."""
    code, report = measure(arguments or EVERYDAY)
    rooms = by_room(report)
    print(f"\n{table(rooms)}")
    wrong = [] if arguments else too_little(rooms)
    print("\n".join(wrong))
    return code or bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
