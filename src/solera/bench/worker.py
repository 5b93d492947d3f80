"""One run of a matrix in a process of its own: from its checkpoint, if it has one, to its record."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout

from solera.bench.axes import applied
from solera.bench.best import rounded
from solera.bench.blends import Blending
from solera.bench.cells import made_cell
from solera.bench.entries import Readable, Tuning
from solera.bench.jobs import Job, Report, Step, blended, fitted, trained, try_method
from solera.bench.records import Failure, Record, failure_path, write
from solera.bench.studies import Study
from solera.bench.sweep import Point, read_trials, shown
from solera.bench.trials import Found, Heard, TrialRecord, attempt
from solera.core.errors import RunError, SoleraError
from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.runs import RunConfig, StoppedError


class Done(NamedTuple):
    """Message of a worker after it has written the record."""

    ndcg: float
    text: str = ""  # where there is more to say

    def __str__(self) -> str:
        return self.text or f"NDCG@10 {self.ndcg:.4f}"


class Failed(NamedTuple):
    """Message of a worker after it has written the failure."""

    error: str

    def __str__(self) -> str:
        return self.error


class Stopped(NamedTuple):
    """Message of a worker that has stopped on request."""


Outcome = Done | Failed | Stopped


def main(job: Job, connection: Connection) -> None:
    """The process: speaks through the connection, and stops when told to or when nobody listens any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent says what to do
    torch.set_num_threads(1)
    stop = threading.Event()

    def listen() -> None:
        with suppress(EOFError, OSError):
            connection.recv()
        stop.set()

    def say(what: Step | Outcome) -> None:
        try:
            connection.send(what)
        except OSError:
            stop.set()

    threading.Thread(target=listen, daemon=True).start()
    say(perform(job, stop, say))


def perform(job: Job, stop: threading.Event, report: Report) -> Outcome:
    """Write the run's record, or the reason for its failure."""
    try:
        with _alone(job.folder.with_name(f"{job.folder.name}.lock"), stop):
            record = _recorded(job) or _made(job, stop, report)
    except StoppedError:
        return Stopped()
    except Exception as error:
        text = _text(error)
        write(Failure(**job.entry.asked.model_dump(), error=text), failure_path(job.record))
        shutil.rmtree(job.folder, ignore_errors=True)
        return Failed(text)
    return _done(record)


@contextmanager
def _alone(lock: Path, stop: threading.Event) -> Iterator[None]:
    """Wait for another benchmark that may be at the same run: perhaps a dead one's last worker."""
    for tries_left in reversed(range(10)):
        try:
            held = FileLock(lock).acquire(poll_interval=0.1, cancel_check=stop.is_set)
            break
        except Timeout:
            raise StoppedError("stopped while waiting") from None
        except (FileExistsError, FileNotFoundError):  # the other one may just have removed the folder
            if not tries_left:
                raise
    with held:
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _done(record: Readable) -> Done:
    if isinstance(record, Study):
        return Done(record.best.ndcg or 0.0)
    if isinstance(record, Record):
        return Done(record.result.test.full["ndcg@10"])
    trial = record.trial
    figure = f"validation NDCG@10 {trial.ndcg:.4f}" if trial.ndcg is not None else trial.error
    ended = "" if trial.end == "finished" else f"{trial.end}: "
    return Done(trial.ndcg or 0.0, f"{shown(trial.options)} · {ended}{figure}")


def _recorded(job: Job) -> Readable | None:
    """The record, if another benchmark was faster."""
    try:
        record = job.entry.read(job.record)
    except RunError:
        return None
    return record if not job.entry.difference(record) and job.entry.complete(job.record) else None


def _made(job: Job, stop: threading.Event, report: Report) -> Readable:
    config = job.entry.config
    data = load(
        config.dataset,
        data_dir=job.data_dir,
        columns=config.columns,
        min_interactions=config.min_interactions,
    )
    record: Readable
    if isinstance(job.entry, Point):
        record = _tried(job, job.entry, data, stop, report)
    elif isinstance(job.entry, Tuning):
        record = made_cell(job, job.entry, data, stop, report)
    elif isinstance(job.entry, Blending):
        record = blended(job, job.entry, data, stop, report)
    elif isinstance(config, RunConfig):
        record = trained(job, config, data, stop, report)
    else:
        record = fitted(job, config, data, stop, report)
    if not isinstance(record, Study):  # a cell writes its study as soon as the search is done
        write(record, job.record)
    failure_path(job.record).unlink(missing_ok=True)
    shutil.rmtree(job.folder, ignore_errors=True)
    return record


def _tried(job: Job, entry: Point, data: Interactions, stop: threading.Event, report: Report) -> TrialRecord:
    base = entry.config
    assert isinstance(base, RunConfig)

    def evaluate(options: dict[str, Any], heard: Heard) -> Found:
        config = applied(base, rounded(options))
        return try_method(config, data, heard, stop, report=report, test=entry.test)

    if entry.settings is not None:
        trial = attempt(entry.settings, evaluate)
    else:
        from solera.bench.tuning import next_trial  # noqa: PLC0415, Optuna is an extra

        trial = next_trial(entry.space, read_trials(job.record.parent), entry.number, evaluate)
    return TrialRecord(**entry.asked.model_dump(), trial=trial)


def _text(error: Exception) -> str:
    if isinstance(error, SoleraError):
        return str(error)
    last = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (in {Path(last.filename).name}, line {last.lineno})"
