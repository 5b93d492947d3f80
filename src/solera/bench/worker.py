"""One run of a matrix in a process of its own: from its checkpoint, if it has one, to its record."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout

from solera.baselines import Epoch
from solera.bench.axes import applied
from solera.bench.best import rounded
from solera.bench.entries import Entry, Readable, Tuning
from solera.bench.machine import anonymous, source
from solera.bench.recording import record_of, record_of_baseline
from solera.bench.records import Code, Failure, Record, failure_path, write
from solera.bench.spaces import as_json
from solera.bench.statistics import SHOWN, by_activity
from solera.bench.studies import Study, read_study
from solera.bench.sweep import Point, read_trials, shown
from solera.bench.trials import Found, Heard, Trial, TrialRecord, attempt
from solera.core.errors import RunError, SoleraError
from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.evaluate import split
from solera.runs import Progress, RunConfig, RunFolder, StoppedError, train
from solera.runs.baseline import run_baseline, validate_baseline
from solera.runs.config import BaselineConfig
from solera.runs.environment import environment, peak_bytes
from solera.runs.training import validate_rounds

GROUPS = 5  # of users, in a trial that scores test items


class Job(NamedTuple):
    """Task of a worker."""

    entry: Entry
    record: Path
    folder: Path  # of the run while it is under way; a lock stands beside it
    data_dir: Path | None


class Step(NamedTuple):
    """Message of a worker after a round or an epoch."""

    done: int
    total: int
    validation: float | None = None  # full-ranking NDCG@10


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
Report = Callable[[Step], None]


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
    return None if record.difference(job.entry.asked) else record


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
        record = _searched(job, job.entry, data, stop, report)
    elif isinstance(config, RunConfig):
        record = _trained(job, config, data, stop, report)
    else:
        record = _fitted(job, config, data, stop, report)
    write(record, job.record)
    failure_path(job.record).unlink(missing_ok=True)
    shutil.rmtree(job.folder, ignore_errors=True)
    return record


def _trained(
    job: Job, config: RunConfig, data: Interactions, stop: threading.Event, report: Report
) -> Record:
    code = _code()
    finished = _prepare(job.folder, config)

    def on_round(now: Progress) -> None:
        report(Step(now.rounds_done, now.rounds, now.ndcg))

    train(config, data, out=job.folder, resume=True, threads=1, on_round=on_round, stop=stop)
    peak = None if finished else peak_bytes()
    return record_of(job.folder, job.entry.label, job.entry.preset, data=data, code=code, peak_bytes=peak)


def _prepare(folder: Path, config: RunConfig) -> bool:
    """Whether the folder holds the run, finished; what holds something else is emptied."""
    if not (folder / "config.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        return False
    opened = RunFolder.open(folder)
    if config.difference(opened.config):
        shutil.rmtree(folder)
        return False
    return opened.result is not None


def _fitted(
    job: Job, config: BaselineConfig, data: Interactions, stop: threading.Event, report: Report
) -> Record:
    code = _code()

    def on_epoch(done: int, epochs: int) -> None:
        report(Step(done, epochs))
        if stop.is_set():
            raise StoppedError("stopped")

    run = run_baseline(
        config.baseline,
        data,
        protocol=config.protocol,
        seed=config.seed,
        options=config.options,
        on_epoch=lambda epoch: on_epoch(epoch.done, epoch.epochs),
    )
    return record_of_baseline(job.entry.asked, run, environment(1, "cpu"), code, peak_bytes())


def _tried(job: Job, entry: Point, data: Interactions, stop: threading.Event, report: Report) -> TrialRecord:
    base = entry.config
    assert isinstance(base, RunConfig)

    def evaluate(options: dict[str, Any], heard: Heard) -> Found:
        config = applied(base, rounded(options))
        return _try_method(config, data, heard, stop, report=report, test=entry.test)

    if entry.settings is not None:
        trial = attempt(entry.settings, evaluate)
    else:
        from solera.bench.tuning import next_trial  # noqa: PLC0415, Optuna is an extra

        trial = next_trial(entry.space, read_trials(job.record.parent), entry.number, evaluate)
    return TrialRecord(**entry.asked.model_dump(), trial=trial)


def _searched(job: Job, entry: Tuning, data: Interactions, stop: threading.Event, report: Report) -> Study:
    code, config = _code(), entry.config
    partial = job.folder / "study.json"
    fixed = {
        **entry.asked.model_dump(),
        "space": as_json(entry.space),
        "environment": anonymous(environment(1, "cpu")),
        "code": code,
    }
    done: tuple[Trial, ...] = ()
    if partial.exists():
        study = read_study(partial)
        done = () if study.difference(entry.asked) or study.space != fixed["space"] else study.trials

    def evaluate(options: dict[str, Any], heard: Heard) -> Found:
        if isinstance(config, RunConfig):
            return _try_method(config.model_copy(update={"options": options}), data, heard, stop)
        return _try_baseline(config, options, data, stop)

    def on_trial(trials: list[Trial]) -> None:
        best = max((trial.ndcg or 0.0) for trial in trials)
        report(Step(len(trials), entry.trials, best))
        write(Study(**fixed, trials=tuple(trials)), partial)

    from solera.bench.tuning import search  # noqa: PLC0415, Optuna is an extra

    trials = search(entry.space, entry.trials, evaluate, first=entry.first, done=done, on_trial=on_trial)
    return Study(**fixed, trials=tuple(trials))


def _try_method(
    config: RunConfig,
    data: Interactions,
    heard: Heard,
    stop: threading.Event,
    *,
    report: Report = lambda _: None,
    test: bool = False,
) -> Found:
    """What the round that counts gives on validation items; with `test` on test items as well."""

    def on_round(now: Progress) -> None:
        report(Step(now.rounds_done, now.rounds, now.ndcg))
        if now.entry.selection is not None:
            heard(now.entry.selection)

    if test:
        once = config.model_copy(update={"test_twice": False})
        run = train(once, data, threads=1, on_round=on_round, stop=stop)
        best, rounds = run.validation, run.result.rounds
    else:
        history = validate_rounds(config, data, threads=1, on_round=on_round, stop=stop)
        validated = [entry for entry in history if entry.validation]
        chosen = validated[-1] if config.dp else max(validated, key=lambda entry: entry.selection or 0.0)
        assert chosen.validation is not None
        best, rounds = chosen.validation, len(history)
    found = Found(
        ndcg=best.full["ndcg@10"],
        hr=best.full["hr@10"],
        ndcg99=best.sampled99["ndcg@10"],
        hr99=best.sampled99["hr@10"],
        rounds=rounds,
    )
    if not test:
        return found
    ranked, sizes = run.evaluate(), split(data, config.protocol).train.lengths
    groups = tuple(by_activity(sizes[ranked.full_ranking.users], ranked, GROUPS))
    test_figures = {
        "test": {name: run.test.full[name] for name in SHOWN},
        "test99": {name: run.test.sampled99[name] for name in SHOWN},
    }
    return found.model_copy(update={**test_figures, "groups": groups})


def _try_baseline(
    config: BaselineConfig, options: dict[str, Any], data: Interactions, stop: threading.Event
) -> Found:
    def on_epoch(_: Epoch) -> None:
        if stop.is_set():
            raise StoppedError("stopped")

    parts = split(data, "strict")
    figures = validate_baseline(config.baseline, parts, seed=config.seed, options=options, on_epoch=on_epoch)
    return Found(ndcg=figures.full["ndcg@10"], hr=figures.full["hr@10"])


def _code() -> Code:
    commit, dirty = source()
    return Code(commit=commit, dirty=dirty)


def _text(error: Exception) -> str:
    if isinstance(error, SoleraError):
        return str(error)
    last = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (in {Path(last.filename).name}, line {last.lineno})"
