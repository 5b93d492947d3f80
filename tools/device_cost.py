"""Measure what a device costs: processor time and memory of its commands, and the size of an installation.

    python tools/device_cost.py [COMMIT …] [--install]

The checkout is measured as it is, and at every commit that is named, in turns, so that a busy machine slows
all of them. The model is fedease on MovieLens-1M, as the first of them exports it. Every command is a process
of its own; the least of five is shown. `--install` also counts the bytes of a new environment with `.[train]`
and with what a device needs alone; before there was that extra, `.[page]` brought both.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
REPEATS = 5
FILMS = 60  # of the history that is imported
NEW, MODEL, HISTORY, KEY = "{new}", "{model}", "{history}", "{key}"
COMMANDS = {
    "solera --version": ("--version",),
    "device init": ("device", "init", NEW, "--bundle", MODEL, "--key", KEY),
    "device import": ("device", "import", NEW, "csv", HISTORY, "--columns", "title=title,time=time"),
    "device recommend": ("device", "recommend", NEW),
    "device recommend --why": ("device", "recommend", NEW, "--why"),
    "device history": ("device", "history", NEW),
    "device status": ("device", "status", NEW),
}
OPEN = "device open, until it is ready"


class Cost(NamedTuple):
    """Of one process: seconds of processor time, seconds until it was ready, and its largest memory."""

    seconds: float
    ready: float
    megabytes: float


class Subject(NamedTuple):
    """A version that is measured, with a folder of its own."""

    name: str
    source: Path
    folder: Path

    def environment(self) -> dict[str, str]:
        """The version's own package, and one thread."""
        return {**os.environ, "PYTHONPATH": str(self.source / "src"), "OMP_NUM_THREADS": "1"}

    def command(self, words: Sequence[str], places: Mapping[str, str]) -> list[str]:
        """The command, with its files."""
        return [sys.executable, "-m", "solera", *(places.get(word, word) for word in words)]


def main(arguments: Sequence[str]) -> None:
    """Print a table of all versions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    parser.add_argument("--install", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch, checkouts(given.commits, Path(scratch)) as sources:
        subjects = [Subject(name, source, Path(scratch) / f"of-{name}") for name, source in sources.items()]
        found = measured(subjects, published(Path(scratch), subjects[0]))
        print("| command | " + " | ".join(f"{name}: CPU, memory" for name in sources) + " |")
        print("|---" * (len(sources) + 1) + "|")
        for command in (*COMMANDS, OPEN):
            costs = [found[command, subject.name] for subject in subjects]
            cells = [f"{cost.seconds:.2f} s, {cost.megabytes:.0f} MB" for cost in costs]
            if command == OPEN:
                cells = [f"{c}, {cost.ready:.2f} s passed" for c, cost in zip(cells, costs, strict=True)]
            print(f"| `{command}` | " + " | ".join(cells) + " |")
        print(f"| an empty Python | {least([python() for _ in range(REPEATS)]).seconds:.2f} s |")
        if given.install:
            for subject in subjects:
                for words in installations(subject.source):
                    size = installed(subject, words) / 1e6
                    print(f"{subject.name}: pip install '{words}' takes {size:,.0f} MB")


@contextmanager
def checkouts(commits: Sequence[str], scratch: Path) -> Iterator[dict[str, Path]]:
    """A folder for every commit, and the checkout itself."""
    git = ("git", "-C", str(ROOT), "worktree")
    made = {commit: scratch / commit for commit in commits}
    try:
        for commit, folder in made.items():
            subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
        yield {**made, "here": ROOT}
    finally:
        for folder in made.values():
            subprocess.run([*git, "remove", "--force", str(folder)], check=False)


def published(scratch: Path, oldest: Subject) -> dict[str, str]:
    """A model that all can read, its key, and a history of films from its catalogue."""
    run, model, key = scratch / "run", scratch / "m.bundle", scratch / "publisher"
    for words in (
        ("train", "fedease", "--data", "ml-1m", "--out", run),
        ("bundle", "keygen", "-o", key),
        ("bundle", "export", run, "-o", model, "--key", f"{key}.key"),
    ):
        command = oldest.command([*map(str, words), "--json"], {})
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=oldest.environment())
    with zipfile.ZipFile(model) as archive:
        titles = [title for _, title, *_ in json.loads(archive.read("catalogue.json"))]
    history = scratch / "history.csv"
    with history.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("title", "time"))
        some = titles[:: len(titles) // FILMS][:FILMS]
        writer.writerows((title, 1_700_000_000 + 86_400 * at) for at, title in enumerate(some))
    return {MODEL: str(model), KEY: f"{key}.pub", HISTORY: str(history)}


def measured(subjects: Sequence[Subject], places: Mapping[str, str]) -> dict[tuple[str, str], Cost]:
    """The least cost of every command in every version."""
    costs: dict[tuple[str, str], list[Cost]] = {}
    for repeat in range(REPEATS):
        for subject in subjects:
            own = {**places, NEW: str(subject.folder / f"device-{repeat}")}
            subject.folder.mkdir(exist_ok=True)
            for name, words in COMMANDS.items():
                cost = process(subject.command(words, own), subject.environment())
                costs.setdefault((name, subject.name), []).append(cost)
            opening = subject.command(("device", "open", NEW, "--no-browser", "--json"), own)
            costs.setdefault((OPEN, subject.name), []).append(
                process(opening, subject.environment(), '"link"')
            )
    return {key: least(found) for key, found in costs.items()}


def least(costs: Sequence[Cost]) -> Cost:
    """The least of each."""
    return Cost(*(min(column) for column in zip(*costs, strict=True)))


def python() -> Cost:
    """What Python itself costs."""
    return process([sys.executable, "-c", ""], dict(os.environ))


def process(command: Sequence[str], environment: Mapping[str, str], ready: str = "") -> Cost:
    """Run a command to its end, or until it has printed a line with `ready`."""
    begin = time.perf_counter()
    started = subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, text=True)
    assert started.stdout
    for line in started.stdout:
        if ready and ready in line:
            break
    passed = time.perf_counter() - begin
    if ready:
        started.terminate()
    _, status, used = os.wait4(started.pid, 0)
    started.stdout.close()
    if status and not ready:
        raise SystemExit(f"{' '.join(command)} failed")
    return Cost(used.ru_utime + used.ru_stime, passed, used.ru_maxrss * 1024 / 1e6)


def installations(source: Path) -> list[str]:
    """What is installed, of a version."""
    extras = (source / "pyproject.toml").read_text(encoding="utf-8")
    return [".", ".[train]"] if "\ntrain = " in extras else [".[page]"]


def installed(subject: Subject, words: str) -> int:
    """The bytes of a new environment; torch is the build for the CPU, as .ci/run takes it."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["uv", "venv", "--quiet", folder], check=True)
        install = [
            "uv",
            "pip",
            "install",
            "--quiet",
            "--python",
            f"{folder}/bin/python",
            "--link-mode",
            "copy",
        ]
        places = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")}
        if words != ".":
            subprocess.run([*install, "torch==2.13.0"], check=True, env={**os.environ, **places})
        subprocess.run([*install, words], check=True, cwd=subject.source, env={**os.environ, **places})
        listed = json.loads(
            subprocess.run(
                ["uv", "pip", "list", "--quiet", "--python", f"{folder}/bin/python", "--format", "json"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        print(f"{len(listed)} packages: ", end="")
        return sum(file.lstat().st_size for file in Path(folder).rglob("*") if not file.is_dir())


if __name__ == "__main__":
    main(sys.argv[1:])
