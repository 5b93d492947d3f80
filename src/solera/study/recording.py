"""Make one run, fit, blend or trial, and its record."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from solera.baselines import Epoch, configure
from solera.core.errors import ConfigError
from solera.data.interactions import Interactions, Split
from solera.evaluate import Evaluation, split
from solera.runs import AfterRound, Progress, Run, RunConfig, RunFolder, StoppedError, train
from solera.runs.baseline import BaselineRun, run_baseline, validate_baseline
from solera.runs.blend import blend_runs
from solera.runs.environment import Code, anonymous, environment, peak_bytes, source
from solera.runs.plan import costs
from solera.runs.presets import preset as find_preset
from solera.runs.result import Bytes, RoundEntry, RunResult, Tested, TestName
from solera.runs.run import FIRST, SECOND
from solera.runs.settings import BaselineConfig
from solera.runs.training import validate_rounds
from solera.study.matrix import Blend, Entry
from solera.study.records import Record, RunRequest, Store, asked
from solera.study.statistics import SHOWN, by_activity, by_ratings
from solera.study.trials import Found, Heard

GROUPS = 5  # of users, in a trial that scores test items


class Step(NamedTuple):
    """Message of a worker after a round or an epoch."""

    done: int
    total: int
    validation: float | None = None  # full-ranking NDCG@10


@dataclass(frozen=True)
class Work:
    """What makes runs: their data, the folder of the run under way, and who is told and may stop it."""

    data: Interactions
    folder: Path
    stop: threading.Event
    report: Callable[[Step], None] = lambda _: None

    def run(self, entry: Entry) -> Record:
        """Train, or fit a baseline."""
        if isinstance(entry.config, RunConfig):
            return self.train(entry, entry.config)
        return self.fit(entry, entry.config)[0]

    def train(self, entry: Entry, config: RunConfig) -> Record:
        """Train from the checkpoint, if there is one, to the record."""
        code, finished = source(), self._prepare(config)

        def on_round(now: Progress) -> None:
            self.report(Step(now.rounds_done, now.rounds, now.ndcg))

        train(
            config,
            self.data,
            out=self.folder,
            resume=True,
            threads=1,
            callbacks=[AfterRound(on_round)],
            stop=self.stop,
        )
        peak = None if finished else peak_bytes()
        return record_of(self.folder, entry.label, entry.preset, data=self.data, code=code, peak_bytes=peak)

    def _prepare(self, config: RunConfig) -> bool:
        """Whether the folder holds the run, finished; what holds something else is emptied."""
        if (self.folder / "config.json").exists():
            opened = RunFolder.open(self.folder)
            if not config.difference(opened.config):
                return opened.result is not None
        shutil.rmtree(self.folder, ignore_errors=True)
        return False

    def fit(self, entry: Entry, config: BaselineConfig) -> tuple[Record, BaselineRun]:
        """Fit a baseline, from the beginning."""
        code = source()
        run = run_baseline(
            config.baseline,
            self.data,
            protocol=config.protocol,
            seed=config.seed,
            options=config.options,
            on_epoch=self._on_epoch,
        )
        result = run.result.model_copy(update={"peak_bytes": peak_bytes()})
        assert result.seconds_to_fit is not None  # every baseline says
        record = Record(
            **_common(entry.asked, result, run.split, run.evaluations),
            environment=anonymous(environment(1, "cpu")),
            code=code,
            seconds=result.seconds_to_fit,
        )
        return record, run

    def _on_epoch(self, epoch: Epoch) -> None:
        self.report(Step(epoch.done, epoch.epochs))
        if self.stop.is_set():
            raise StoppedError("stopped")

    def blend(self, entry: Blend, results: Store[Record]) -> Record:
        """Make both runs of a blend, with their records where these are missing, and blend them."""
        code = source()
        runs: list[Run | BaselineRun] = []
        records: list[Record] = []
        for part, name in zip(entry.parts, (FIRST, SECOND), strict=True):
            inner = replace(self, folder=self.folder / name)
            if isinstance(part.config, RunConfig):
                record = inner.train(part, part.config)
                runs.append(Run.open(inner.folder, data=self.data))
            else:
                record, fitted = inner.fit(part, part.config)
                runs.append(fitted)
            records.append(record)
            if not part.is_recorded(results):
                results.put(record)
        run = blend_runs(*runs)
        tests = {name: run.evaluate(name) for name in run.result.tests}
        sent = [each.bytes_until_selected for each in records if each.bytes_until_selected]
        both = Bytes(up=sum(each.up for each in sent), down=sum(each.down for each in sent))
        return Record(
            **_common(entry.asked, run.result, run.parts, tests),
            environment=anonymous(environment(1, "cpu")),
            code=code,
            seconds=sum(part.seconds for part in records),  # and other costs are added up too
            bytes_until_selected=both if entry.asked.kind == "method" else None,
        )

    def attempt(
        self, config: RunConfig | BaselineConfig, heard: Heard = lambda *_: None, *, test: bool = False
    ) -> Found:
        """What settings give on validation items; a method, with `test`, on test items as well."""
        if isinstance(config, RunConfig):
            return self._attempt_method(config, heard, test)

        def on_epoch(_: Epoch) -> None:
            if self.stop.is_set():
                raise StoppedError("stopped")

        parts = split(self.data, config.protocol)
        figures = validate_baseline(
            config.baseline, parts, seed=config.seed, options=config.options, on_epoch=on_epoch
        )
        epochs = configure(config.baseline, config.options).model_dump().get("epochs")
        return Found(ndcg=figures.full["ndcg@10"], hr=figures.full["hr@10"], passes=epochs)

    def _attempt_method(self, config: RunConfig, heard: Heard, test: bool) -> Found:
        passes = 0.0

        def on_round(now: Progress) -> None:
            nonlocal passes
            passes += now.entry.clients / self.data.n_users
            self.report(Step(now.rounds_done, now.rounds, now.ndcg))
            if now.entry.selection is not None:
                heard(now.entry.selection, passes)

        how: dict[str, Any] = {"threads": 1, "callbacks": [AfterRound(on_round)], "stop": self.stop}
        tested: dict[str, Any] = {}
        if test:
            run = train(config, self.data, **how)
            best, rounds = run.validation, run.result.rounds
            name, figures = run.result.main
            ranked, sizes = run.evaluate(name), split(self.data, config.protocol).train.lengths
            groups = by_activity(sizes[ranked.full_ranking.users], ranked, GROUPS)
            tested = {
                "tested": name,
                "test": {metric: figures.full[metric] for metric in SHOWN},
                "test99": {metric: figures.sampled99[metric] for metric in SHOWN},
                "groups": tuple(groups),
            }
        else:
            history = validate_rounds(config, self.data, **how)
            validated = [entry for entry in history if entry.validation]
            chosen = validated[-1] if config.dp else max(validated, key=lambda entry: entry.selection or 0.0)
            assert chosen.validation is not None
            best, rounds = chosen.validation, len(history)
        return Found(
            ndcg=best.full["ndcg@10"],
            hr=best.full["hr@10"],
            ndcg99=best.sampled99["ndcg@10"],
            hr99=best.sampled99["hr@10"],
            rounds=rounds,
            passes=passes,
            **tested,
        )


def record_of(
    run_folder: str | Path,
    label: str | None = None,
    preset: str | None = None,
    *,
    data: Interactions | None = None,
    data_dir: Path | None = None,
    code: Code | None = None,
    peak_bytes: int | None = None,
) -> Record:
    """The record of a finished run's folder, also of one that no benchmark made.

    The test items are ranked again with the folder's model, for the ranks of single users. `label` is the
    preset's name by default, or the method's. Commit and memory are in no folder: they are what is given.

    >>> record = record_of("runs/fedmf-ml-100k-strict-s0")  # doctest: +SKIP
    >>> Store(Path("results.parquet"), Record).add(record)  # doctest: +SKIP
    """
    run, folder = Run.open(run_folder, data=data, data_dir=data_dir), RunFolder.open(Path(run_folder))
    config, result, history = folder.config, run.result, folder.history
    wanted = asked(label or preset or config.full_method, config, preset)
    if preset:
        _check_preset(wanted, preset)
    tests = {name: run.evaluate_again(name) for name in result.tests}
    return Record(
        **_common(wanted, result.model_copy(update={"peak_bytes": peak_bytes}), run.parts, tests),
        environment=anonymous(folder.environment),
        code=code or Code(),
        seconds=sum(entry.seconds.train + entry.seconds.evaluate for entry in history),
        bytes_until_selected=_until_selected(result, history),
        costs=costs(config.built, result.users, result.items, history),
    )


def _common(
    wanted: RunRequest, result: RunResult, parts: Split, tests: Mapping[TestName, Evaluation]
) -> dict[str, Any]:
    main = tests[result.main[0]]
    counts = main.full_ranking.counts
    ranks = {name: test.full_ranking.places.tolist() for name, test in tests.items()}
    figures: dict[str, Any] = {name: Tested.of(test) for name, test in tests.items()}
    return {
        **wanted.model_dump(exclude={"format"}),
        "result": result.model_copy(update={"dataset": wanted.dataset, **figures}),
        "by_activity": by_activity(parts.train.lengths[main.full_ranking.users], main),
        "by_ratings": by_ratings(parts.data.by_user.lengths[main.full_ranking.users], main),
        "counts": None if (counts == 1).all() else counts.tolist(),
        "ranks": ranks.get("test"),
        "ranks_train": ranks.get("test_train"),
    }


def _until_selected(result: RunResult, history: Sequence[RoundEntry]) -> Bytes:
    """What an average client sends and receives: where clients are sampled, most sit out some rounds."""
    until = history[: result.selected_round]
    return Bytes(
        up=sum(entry.bytes.up * entry.clients for entry in until) / result.users,
        down=sum(entry.bytes.down * entry.clients for entry in until) / result.users,
    )


def _check_preset(wanted: RunRequest, preset: str) -> None:
    config = find_preset(preset).config(protocol=wanted.protocol, seed=wanted.seed)
    difference = wanted.difference(asked(wanted.label, config, preset))
    if difference:
        raise ConfigError(
            f"this run does not use preset {preset!r}: {difference}",
            "omit the preset and give a label instead",
        )
