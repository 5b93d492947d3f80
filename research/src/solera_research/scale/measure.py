"""Measure points, each in processes of its own, and write a record as each is done."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from solera.core.errors import RunError
from solera.runs import RunFolder
from solera.runs.environment import anonymous, reported_bytes, source
from solera.runs.settings import VALIDATED
from solera.runs.training import interruptible
from solera.study.records import Store
from solera_research.scale.points import Point
from solera_research.scale.records import Planned, ScaleRecord, Seconds
from solera_research.scale.worlds import prepare

_EVERY = 0.1  # seconds between looks at the memory of processes
_GRACE = 20.0  # seconds until a process that was asked to end is killed


class FailedError(RunError):
    """A point whose run failed."""


def todo(points: Sequence[Point], table: Path, *, replace: bool = False) -> list[Point]:
    """The points that have no record yet; all of them if records are replaced."""
    done = {} if replace else Store(table, ScaleRecord).listed()
    return [point for point in points if point.name not in done]


def measure(point: Point, table: Path, worlds: Path, say: Callable[[str], None] = lambda _: None) -> None:
    """Measure one point and add its record to the table. `say` hears what is being done."""
    say(f"{point.name}: data")
    file, world = prepare(point.users, point.items, worlds)
    with tempfile.TemporaryDirectory(prefix="solera-scale-") as scratch:
        out = Path(scratch) / "run"
        arguments = point.arguments(str(file), str(out))
        planned = None
        if point.ranks == 1:
            say(f"{point.name}: plan")
            said, *_ = _run([*arguments, "--plan"], Path(scratch))
            parts = said["seconds"]
            planned = Planned(bytes=said["bytes"], seconds=sum(parts.values()) if parts else None)
        say(f"{point.name}: training")
        said, wall, peaks = _run(arguments, Path(scratch))
        done = RunFolder.open(out)
        result, history = done.result, done.history
        assert result is not None  # of a command that succeeded
        record = ScaleRecord(
            point=point,
            world=world,
            seconds=Seconds(
                wall=wall,
                train=float(np.median([entry.seconds.train for entry in history])),
                server=float(np.median([entry.seconds.server or 0.0 for entry in history])),
                training=sum(entry.seconds.train for entry in history),
                validation=sum(entry.seconds.evaluate for entry in history),
                test=result.seconds_to_test or 0.0,
            ),
            validated=sum(min(point.evaluate_users, VALIDATED) for entry in history if entry.validation),
            tested=result.evaluated_users,
            peak_bytes=max([result.peak_bytes or 0, *peaks]),
            peak_of_all=max(result.peak_bytes or 0, sum(peaks)),
            bytes_up=result.bytes.up if result.bytes else 0.0,
            bytes_down=result.bytes.down if result.bytes else 0.0,
            kept_bytes=(out / "personal.safetensors").stat().st_size,
            embedding_size=result.options.get("embedding_size", 1),
            ndcg=result.main[1].full["ndcg@10"],
            plan=planned,
            command=" ".join(["solera", *point.arguments(file.name, "RUN")]),
            environment=anonymous(done.environment),
            code=source(),
        )
    Store(table, ScaleRecord).add(record)


def _run(arguments: Sequence[str], scratch: Path) -> tuple[dict[str, Any], float, list[int]]:
    """Run `solera` and return what it printed, its seconds, and the peak of each of its processes.

    On Ctrl-C the process is ended. An exception at any moment could come while it starts, and leave it
    running.
    """
    out, err = scratch / "stdout", scratch / "stderr"
    start = time.perf_counter()
    with interruptible() as stopped, out.open("w") as to_out, err.open("w") as to_err:
        process = subprocess.Popen(  # with a session of its own: Ctrl-C is for us, and we end the process
            [sys.executable, "-m", "solera", *arguments],
            stdout=to_out,
            stderr=to_err,
            start_new_session=True,
        )
        try:
            peaks = _watch(process, stopped)
        finally:
            _end(process)
    if stopped.is_set():
        raise KeyboardInterrupt
    seconds = time.perf_counter() - start
    if process.returncode:
        lines = [line for line in err.read_text(encoding="utf-8").splitlines() if line.strip()]
        raise FailedError(
            f"`solera {' '.join(arguments[:2])}` ended with {process.returncode}: {' '.join(lines[-2:])}",
            "the other points are measured; the same command tries this one again",
        )
    return json.loads(out.read_text(encoding="utf-8")), seconds, peaks


def _watch(process: subprocess.Popen[bytes], stopped: threading.Event) -> list[int]:
    """Wait for a process. Return the peak memory of it and of those it started, in bytes."""
    peaks: dict[int, int] = {}
    while process.poll() is None and not stopped.is_set():
        for pid in _family(process.pid):
            peaks[pid] = max(peaks.get(pid, 0), reported_bytes("VmHWM", pid) or 0)
        time.sleep(_EVERY)
    return [peak for peak in peaks.values() if peak]


def _family(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return [pid]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        for pid in _family(process.pid):
            psutil.Process(pid).kill()
        process.wait()
