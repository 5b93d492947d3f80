"""Run the missing runs of a matrix in parallel, each in a separate process.

A run under way is a run folder in `.bench-work/`, beside the results. Whatever ends this process or one of
its workers, the next `run_matrix` goes on from the last checkpoint; a record, once written, stays as it is.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from solera.core.errors import RunError
from solera.data.datasets import available, load, names
from solera.runs.environment import check_committed
from solera.runs.training import interruptible
from solera.study.matrix import Entry, Matrix, Tuning
from solera.study.recording import Step
from solera.study.records import WORK, Record
from solera.study.worker import Job, Outcome, main

_SPAWN = multiprocessing.get_context("spawn")
_TICK = 0.2  # seconds between looks at the clock and at Ctrl-C
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")


@dataclass(frozen=True)
class Plan:
    """What a matrix comes to: entries that have a record, that failed before, and that are to be run."""

    recorded: list[Entry] = field(default_factory=list)
    failed: list[tuple[Entry, str]] = field(default_factory=list)
    todo: list[Entry] = field(default_factory=list)


@dataclass(frozen=True)
class Finished:
    """A finished entry."""

    entry: Entry
    outcome: Outcome
    seconds: float

    @property
    def succeeded(self) -> bool:
        """Whether there is a record."""
        return self.outcome.end == "done"


@dataclass(eq=False)
class Running:
    """A running entry."""

    entry: Entry
    process: SpawnProcess
    connection: Connection
    started: float
    step: Step | None = None
    first: tuple[float, int] | None = None  # the moment of the first step, and how far it was
    outcome: Outcome | None = None

    def hear(self, what: Step | Outcome, now: float) -> None:
        """Process a message of the worker."""
        if isinstance(what, Step):
            self.step = what
            self.first = self.first or (now, what.done)
        else:
            self.outcome = what

    def remaining(self, now: float) -> float | None:
        """Estimated remaining seconds; None if unknown."""
        if self.step is None or self.first is None or self.step.done <= self.first[1]:
            return None
        since, at = self.first
        return (self.step.total - self.step.done) * (now - since) / (self.step.done - at)


@dataclass
class Status:
    """Progress of a matrix."""

    plan: Plan
    jobs: int
    waiting: list[Entry]
    running: list[Running] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    stopping: bool = False

    @property
    def total(self) -> int:
        """Entries of the matrix."""
        return len(self.plan.recorded) + len(self.plan.failed) + len(self.plan.todo)

    @property
    def done(self) -> int:
        """Entries that have a record."""
        return len(self.plan.recorded) + sum(each.succeeded for each in self.finished)

    @property
    def failed(self) -> list[tuple[Entry, str]]:
        """Entries that have none because something went wrong, now or before."""
        now = [(each.entry, each.outcome.text) for each in self.finished if not each.succeeded]
        return self.plan.failed + now

    def eta(self, now: float) -> float | None:
        """Seconds to the end, supposing that what waits takes as long as the mean of what does not."""
        remaining = [run.remaining(now) for run in self.running]
        known = [
            r + now - run.started for run, r in zip(self.running, remaining, strict=True) if r is not None
        ]
        known += [each.seconds for each in self.finished if each.succeeded]
        if not known:
            return None
        mean = statistics.fmean(known)
        left = [mean if r is None else r for r in remaining] + [mean] * len(self.waiting)
        return max([sum(left) / self.jobs, *left])


OnChange = Callable[[Status], None]


def make_plan(matrix: Matrix, *, retry_failed: bool = False, replace: bool = False) -> Plan:
    """Look at the records that are there; one that is of other settings is an error unless it may go."""
    plan, stale = Plan(), list[str]()
    results, stores = matrix.store(Record), matrix.stores
    failures = {kind: store.failures() for kind, store in stores.items()}
    for entry in matrix.entries:
        store, name = stores[entry.makes], entry.asked.name
        record, failure = store.requests().get(name), failures[entry.makes].get(name)
        difference = entry.difference(record) if record else ""
        if difference:
            stale.append(f"{name} in {store.path} is of another run: {difference}")
        if record and not difference and entry.complete(record, results):
            plan.recorded.append(entry)
        elif failure and not difference and not retry_failed and not entry.difference(failure):
            plan.failed.append((entry, failure.error))
        else:  # a failure of other settings may well have succeeded with these
            plan.todo.append(entry)
    if stale and not replace:
        more = f" (and {len(stale) - 1} more)" if len(stale) > 1 else ""
        raise RunError(stale[0] + more, "give --replace to run it again, or give the run another label")
    return plan


def run_matrix(
    matrix: Matrix,
    plan: Plan,
    *,
    jobs: int | None = None,
    data_dir: Path | None = None,
    on_change: OnChange = lambda _: None,
) -> Status:
    """Run what the plan has to be run. Ctrl-C ends every run after its round, a second one at once."""
    for store in matrix.stores.values() if plan.todo else ():
        check_committed(store.path)
    status = Status(plan, jobs or os.cpu_count() or 1, list(plan.todo))
    work = matrix.results.parent / WORK
    for entry in plan.recorded:  # where a worker was killed after its last deed
        folder = _folder(work, entry)
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_name(f"{folder.name}.lock").unlink(missing_ok=True)
    for dataset in {entry.config.dataset for entry in plan.todo} & set(names()):
        if available(dataset, data_dir) == "download":
            load(dataset, data_dir=data_dir)  # once, not in every worker
    with interruptible() as wish:
        try:
            while status.waiting or status.running:
                if wish.is_set() and not status.stopping:
                    status.stopping, status.waiting = True, []
                    _tell_to_stop(status)
                while status.waiting and len(status.running) < status.jobs:
                    entry = status.waiting.pop(0)
                    status.running.append(_start(Job.of(matrix, entry, _folder(work, entry), data_dir)))
                on_change(status)
                if _listen(status):
                    _collect(matrix)
        finally:
            for run in status.running:
                run.process.kill()
                run.process.join()
            _collect(matrix)
    on_change(status)
    with suppress(OSError):
        work.rmdir()
    return status


def _collect(matrix: Matrix) -> None:
    for store in matrix.stores.values():
        store.collect()


def _folder(work: Path, entry: Entry) -> Path:
    name = entry.asked.name.replace("/", "--")
    return work / (f"tuning--{name}" if isinstance(entry, Tuning) else name)


def _start(job: Job) -> Running:
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=main, args=(job, there), daemon=True)
    with _inherited():
        process.start()
    there.close()  # so that the end of the worker is the end of the connection
    return Running(job.entry, process, here, time.monotonic())


@contextmanager
def _inherited() -> Iterator[None]:
    """What a worker has to have from its first moment: one thread, and no ear for Ctrl-C."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if main_thread else None
    try:
        yield
    finally:
        if main_thread:
            signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _tell_to_stop(status: Status) -> None:
    for run in status.running:
        with suppress(OSError):
            run.connection.send("stop")


def _listen(status: Status) -> bool:
    """Hear what the workers say; return whether one of them has ended."""
    ended = False
    by_connection = {run.connection: run for run in status.running}
    for connection in wait(list(by_connection), timeout=_TICK):
        assert isinstance(connection, Connection)
        run = by_connection[connection]
        try:
            run.hear(connection.recv(), time.monotonic())
        except (EOFError, OSError):
            run.process.join()
            status.running.remove(run)
            ended = True
            # A worker that could not even say why it failed was killed, and is no failure of the run.
            killed = f"its process ended with {run.process.exitcode}; the next time it goes on"
            outcome = run.outcome or Outcome("failed", killed)
            if outcome.end != "stopped":
                status.finished.append(Finished(run.entry, outcome, time.monotonic() - run.started))
    return ended
