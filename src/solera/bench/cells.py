"""A cell of a comparison: search for settings, then make the final runs with the best of them."""

from __future__ import annotations

import threading
from typing import Any

from solera.bench.effort import chance, some_users
from solera.bench.entries import Entry, Tuning
from solera.bench.jobs import Job, Report, Step, fitted, source_code, trained, try_baseline, try_method
from solera.bench.machine import anonymous
from solera.bench.records import Record, write
from solera.bench.spaces import as_json
from solera.bench.studies import Study, read_study
from solera.bench.trials import Found, Heard, Trial
from solera.core.errors import DivergedError
from solera.data.interactions import Interactions
from solera.runs import RunConfig, StoppedError
from solera.runs.environment import environment

_NO_BETTER = 2.0  # times the figure of a random order: a trial up to that has found nothing
_COLLAPSED = 0.5  # of the trial's figure: a final run up to that has failed


def made_cell(job: Job, entry: Tuning, data: Interactions, stop: threading.Event, report: Report) -> Study:
    """The study of a cell, with a record of every final run. What is there already stays.

    Settings that diverge or collapse in a final run are rejected, and the next best ones are taken for all
    seeds.
    """
    study = _found(job, entry)
    if study is None:
        study = _searched(job, entry, data, stop, report)
        write(study, job.record)
    while True:
        for final in entry.missing(study):
            try:
                record = _final(job, entry, final, data, stop=stop, report=report)
                _check(record, study, data)
            except DivergedError as error:
                study = study.without_best(final.config.seed, error.message)
                write(study, job.record)
                break
            write(record, entry.results / final.asked.name)
        else:
            return study


def _found(job: Job, entry: Tuning) -> Study | None:
    """The finished study, if it is of this search."""
    if not job.record.exists():
        return None
    study = read_study(job.record)
    return None if entry.difference(study) else study


def _final(
    job: Job, entry: Tuning, final: Entry, data: Interactions, *, stop: threading.Event, report: Report
) -> Record:
    """Make one final run."""
    effort = entry.effort
    before = (effort.trials + entry.seeds.index(final.config.seed)) * effort.passes

    def on_round(step: Step) -> None:
        report(Step(before + effort.passes * step.done // step.total, entry.total, step.validation))

    run = job._replace(entry=final, folder=job.folder / f"s{final.config.seed}")
    if isinstance(final.config, RunConfig):
        return trained(run, final.config, data, stop, on_round)
    return fitted(run, final.config, data, stop, on_round)


def _check(record: Record, study: Study, data: Interactions) -> None:
    """A run with at most half the figure of its trial has failed too: its settings need a lucky seed."""
    figure, found = record.result.validation.full["ndcg@10"], study.best.ndcg or 0.0
    if figure <= _COLLAPSED * found and found > _NO_BETTER * chance(data.n_items):
        raise DivergedError(
            f"validation NDCG@10 is {figure:.4f}; in the trial it was {found:.4f}",
            "the next best settings are taken",
        )


def _searched(job: Job, entry: Tuning, whole: Interactions, stop: threading.Event, report: Report) -> Study:
    effort = entry.effort
    data = some_users(whole, effort.users)
    partial = job.folder / "study.json"
    fixed = {
        **entry.asked.model_dump(),
        "space": as_json(entry.space),
        "environment": anonymous(environment(1, "cpu")),
        "code": source_code(),
        "users": whole.n_users,
    }
    done: tuple[Trial, ...] = ()
    if partial.exists():
        study = read_study(partial)
        done = () if entry.difference(study) else study.trials
    made, best = len(done), 0.0

    def evaluate(options: dict[str, Any], heard: Heard) -> Found:
        def and_said(figure: float, passes: float) -> None:
            report(Step(made * effort.passes + int(passes), entry.total, max(best, figure)))
            heard(figure, passes)

        if stop.is_set():  # between trials that have neither rounds nor epochs
            raise StoppedError("stopped")
        taken = entry.with_options(options, data.n_users)
        if not isinstance(taken, RunConfig):
            return try_baseline(taken, taken.options, data, stop)
        return try_method(taken, data, and_said, stop)

    def on_trial(trials: list[Trial]) -> None:
        nonlocal made, best
        made, best = len(trials), max((trial.ndcg or 0.0) for trial in trials)
        report(Step(made * effort.passes, entry.total, best))
        write(Study(**fixed, trials=tuple(trials)), partial)

    from solera.bench.tuning import search  # noqa: PLC0415, Optuna is an extra

    trials = search(entry.space, effort, evaluate, first=entry.first, done=done, on_trial=on_trial)
    return Study(**fixed, trials=tuple(trials))
