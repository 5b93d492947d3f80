"""One entry of a matrix in a process of its own: from what is there of it to its records."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal, NamedTuple

import torch
from filelock import Timeout

from solera.core.errors import DivergedError, RunError, SoleraError
from solera.runs import StoppedError
from solera.runs.environment import anonymous, environment, source
from solera.runs.settings import RunConfig
from solera.study.budget import chance, some_users
from solera.study.matrix import Blend, Entry, Matrix, Tuning
from solera.study.recording import Step, Work
from solera.study.records import SEARCH, Failure, Record, RunRequest, Store, alone
from solera.study.search_space import applied, as_json
from solera.study.sweep import Point, shown
from solera.study.trials import Found, Heard, Study, Trial, TrialRecord, attempt

_NO_BETTER = 2.0  # times the figure of a random order: a trial up to that has found nothing
_COLLAPSED = 0.5  # of the trial's figure: a final run up to that has failed


class Outcome(NamedTuple):
    """The last message of a worker."""

    end: Literal["done", "failed", "stopped"]
    text: str = ""


Report = Callable[[Step], None]


@dataclass(frozen=True)
class Job:
    """Task of a worker."""

    entry: Entry
    store: Store[Any]  # of the entry's record
    results: Store[Record]
    folder: Path  # of the run while it is under way; a lock stands beside it
    data_dir: Path | None = None

    @classmethod
    def of(cls, matrix: Matrix, entry: Entry, folder: Path, data_dir: Path | None = None) -> Job:
        """The task of making an entry."""
        return cls(entry, matrix.store(entry.makes), matrix.store(Record), folder, data_dir)

    def done(self) -> Any:
        """The record, if nothing is left to do."""
        try:
            record = self.store.find(self.entry.asked.name)
        except RunError:
            return None
        if record is None or self.entry.difference(record) or not self.entry.complete(record, self.results):
            return None
        return record


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
        # Another benchmark may be at the same run: perhaps a dead one's last worker.
        with alone(job.folder.with_name(f"{job.folder.name}.lock"), stop.is_set):
            record = job.done() or _made(job, stop, report)
    except (StoppedError, Timeout):
        return Outcome("stopped")
    except Exception as error:
        text = _text(error)
        job.store.put(Failure(**job.entry.asked.model_dump(), error=text))
        shutil.rmtree(job.folder, ignore_errors=True)
        return Outcome("failed", text)
    return Outcome("done", _in_words(record))


def _in_words(record: RunRequest) -> str:
    if isinstance(record, Study):
        return f"NDCG@10 {record.best.ndcg or 0.0:.4f}"
    if isinstance(record, Record):
        name, test = record.result.main
        return f"{name} NDCG@10 {test.full['ndcg@10']:.4f}"
    assert isinstance(record, TrialRecord)
    trial = record.trial
    figure = f"validation NDCG@10 {trial.ndcg:.4f}" if trial.ndcg is not None else trial.error
    ended = "" if trial.end == "finished" else f"{trial.end}: "
    return f"{shown(trial.options)} · {ended}{figure}"


def _text(error: Exception) -> str:
    if isinstance(error, SoleraError):
        return str(error)
    last = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (in {Path(last.filename).name}, line {last.lineno})"


def _made(job: Job, stop: threading.Event, report: Report) -> RunRequest:
    config = job.entry.config
    data = config.load_data(job.data_dir)
    work = Work(data, job.folder, stop, report)
    record: RunRequest
    if isinstance(job.entry, Tuning):
        record = _tuned(job, job.entry, work)
    elif isinstance(job.entry, Point):
        record = TrialRecord(**job.entry.asked.model_dump(), trial=_tried(job, job.entry, work))
        job.store.put(record)
    else:
        record = work.blend(job.entry, job.results) if isinstance(job.entry, Blend) else work.run(job.entry)
        job.store.put(record)
    shutil.rmtree(job.folder, ignore_errors=True)
    return record


def _tried(job: Job, entry: Point, work: Work) -> Trial:
    """A trial of a sweep."""
    base = entry.config
    assert isinstance(base, RunConfig)

    def evaluate(options: dict[str, Any], heard: Heard) -> Found:
        return work.attempt(applied(base, options), heard, test=entry.test)

    if entry.settings is not None:
        return attempt(entry.settings, evaluate)
    from solera.study.tune import MEDIAN, next_trial, opened  # noqa: PLC0415, Optuna is an extra

    given: dict[str, Any] | None = None if entry.number else {}
    return next_trial(
        opened(job.store.path.with_name(SEARCH), MEDIAN), entry.space, entry.number, evaluate, given
    )


def _tuned(job: Job, entry: Tuning, work: Work) -> Study:
    """The study of a search, with a record of every final run. What is there already stays.

    Settings that diverge or collapse in a final run are rejected, and the next best ones are taken for all
    seeds.
    """
    study: Study | None = job.store.find(entry.asked.name)
    if study is None or entry.difference(study):
        study = _searched(entry, work)
        job.store.put(study)
    while True:
        for final in entry.missing(study, job.results):
            try:
                record = _final(entry, final, work)
                _check(record, study, work.data.n_items)
            except DivergedError as error:
                study = study.without_best(final.config.seed, error.message)
                job.store.put(study)
                break
            job.results.put(record)
        else:
            return study


def _final(entry: Tuning, final: Entry, work: Work) -> Record:
    effort, seed = entry.effort, final.config.seed
    before = (effort.trials + entry.seeds.index(seed)) * effort.passes

    def report(step: Step) -> None:
        work.report(Step(before + effort.passes * step.done // step.total, entry.total, step.validation))

    return replace(work, folder=work.folder / f"s{seed}", report=report).run(final)


def _check(record: Record, study: Study, n_items: int) -> None:
    """A run with at most half the figure of its trial has failed too: its settings need a lucky seed."""
    figure, found = record.result.validation.full["ndcg@10"], study.best.ndcg or 0.0
    if figure <= _COLLAPSED * found and found > _NO_BETTER * chance(n_items):
        raise DivergedError(
            f"validation NDCG@10 is {figure:.4f}; in the trial it was {found:.4f}",
            "the next best settings are taken",
        )


def _searched(entry: Tuning, work: Work) -> Study:
    from solera.study.tune import search  # noqa: PLC0415, Optuna is an extra

    effort, whole, best = entry.effort, work.data, 0.0
    data = some_users(whole, effort.users)
    quiet = replace(work, data=data, report=lambda _: None)
    asked: dict[str, Any] = {**entry.asked.model_dump(mode="json"), "space": as_json(entry.space)}
    machine, code = anonymous(environment(1, "cpu")), source()
    made = 0

    def evaluate(options: dict[str, Any], heard: Heard) -> Found:
        def and_said(figure: float, passes: float) -> None:
            work.report(Step(made * effort.passes + int(passes), entry.total, max(best, figure)))
            heard(figure, passes)

        if work.stop.is_set():  # between trials that have neither rounds nor epochs
            raise StoppedError("stopped")
        return quiet.attempt(entry.with_options(options, data.n_users), and_said)

    def on_trial(trials: list[Trial]) -> None:
        nonlocal made, best
        made, best = len(trials), max((trial.ndcg or 0.0) for trial in trials)
        work.report(Step(made * effort.passes, entry.total, best))

    trials = search(
        work.folder / SEARCH, entry.space, effort, evaluate, asked=asked, first=entry.first, on_trial=on_trial
    )
    return Study(**asked, environment=machine, code=code, users=whole.n_users, trials=tuple(trials))
