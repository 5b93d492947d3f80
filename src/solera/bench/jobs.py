"""What a worker does: train, fit or try, with a word after every round."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from solera.baselines import Epoch, configure
from solera.bench.blends import Blending
from solera.bench.entries import Entry, is_recorded
from solera.bench.machine import source
from solera.bench.recording import record_of, record_of_baseline, record_of_blend
from solera.bench.records import Code, Record, write
from solera.bench.statistics import SHOWN, by_activity
from solera.bench.trials import Found, Heard
from solera.data.interactions import Interactions
from solera.evaluate import split
from solera.runs import AfterRound, Progress, Run, RunConfig, RunFolder, StoppedError, train
from solera.runs.baseline import BaselineRun, run_baseline, validate_baseline
from solera.runs.blend import blend_runs
from solera.runs.environment import environment, peak_bytes
from solera.runs.run import FIRST, SECOND
from solera.runs.settings import BaselineConfig
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


Report = Callable[[Step], None]


def trained(job: Job, config: RunConfig, data: Interactions, stop: threading.Event, report: Report) -> Record:
    """Train from the checkpoint, if there is one, to the record."""
    made_by = source_code()
    finished = _prepare(job.folder, config)

    def on_round(now: Progress) -> None:
        report(Step(now.rounds_done, now.rounds, now.ndcg))

    train(config, data, out=job.folder, resume=True, threads=1, callbacks=[AfterRound(on_round)], stop=stop)
    peak = None if finished else peak_bytes()
    return record_of(job.folder, job.entry.label, job.entry.preset, data=data, code=made_by, peak_bytes=peak)


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


def fitted(
    job: Job, config: BaselineConfig, data: Interactions, stop: threading.Event, report: Report
) -> Record:
    """Fit a baseline, from the beginning."""
    made_by = source_code()
    run = _fit(config, data, stop, report)
    return record_of_baseline(job.entry.asked, run, environment(1, "cpu"), made_by, peak_bytes())


def _fit(config: BaselineConfig, data: Interactions, stop: threading.Event, report: Report) -> BaselineRun:
    def on_epoch(done: int, epochs: int) -> None:
        report(Step(done, epochs))
        if stop.is_set():
            raise StoppedError("stopped")

    return run_baseline(
        config.baseline,
        data,
        protocol=config.protocol,
        seed=config.seed,
        options=config.options,
        on_epoch=lambda epoch: on_epoch(epoch.done, epoch.epochs),
    )


def blended(job: Job, entry: Blending, data: Interactions, stop: threading.Event, report: Report) -> Record:
    """Make both runs of a blend, with their records where these are missing, and blend them."""
    made_by = source_code()
    runs: list[Run | BaselineRun] = []
    records: list[Record] = []
    for part, name in zip(entry.parts, (FIRST, SECOND), strict=True):
        inner = job._replace(entry=part, folder=job.folder / name)
        if isinstance(part.config, RunConfig):
            records.append(trained(inner, part.config, data, stop, report))
            runs.append(Run.open(inner.folder, data=data))
        else:
            runs.append(fit := _fit(part.config, data, stop, report))
            about = environment(1, "cpu")
            records.append(record_of_baseline(part.asked, fit, about, made_by, peak_bytes()))
        if not is_recorded(entry.results, part):
            write(records[-1], entry.results / part.asked.name)
    return record_of_blend(entry.asked, blend_runs(*runs), records, environment(1, "cpu"), made_by)


def try_method(
    config: RunConfig,
    data: Interactions,
    heard: Heard,
    stop: threading.Event,
    *,
    report: Report = lambda _: None,
    test: bool = False,
) -> Found:
    """What the round that counts gives on validation items; with `test` on test items as well."""

    passes = 0.0

    def on_round(now: Progress) -> None:
        nonlocal passes
        passes += now.entry.clients / data.n_users
        report(Step(now.rounds_done, now.rounds, now.ndcg))
        if now.entry.selection is not None:
            heard(now.entry.selection, passes)

    if test:
        once = config.model_copy(update={"second_test": False})
        run = train(once, data, threads=1, callbacks=[AfterRound(on_round)], stop=stop)
        best, rounds = run.validation, run.result.rounds
    else:
        history = validate_rounds(config, data, threads=1, callbacks=[AfterRound(on_round)], stop=stop)
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
        passes=passes,
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


def try_baseline(
    config: BaselineConfig, options: dict[str, Any], data: Interactions, stop: threading.Event
) -> Found:
    """What a baseline gives on validation items."""

    def on_epoch(_: Epoch) -> None:
        if stop.is_set():
            raise StoppedError("stopped")

    parts = split(data, config.protocol)
    figures = validate_baseline(config.baseline, parts, seed=config.seed, options=options, on_epoch=on_epoch)
    epochs = configure(config.baseline, options).model_dump().get("epochs")
    return Found(ndcg=figures.full["ndcg@10"], hr=figures.full["hr@10"], passes=epochs)


def source_code() -> Code:
    """The code that runs."""
    commit, dirty = source()
    return Code(commit=commit, dirty=dirty)
