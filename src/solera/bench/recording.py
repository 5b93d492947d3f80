"""Make the record of a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from solera.bench.machine import anonymous
from solera.bench.records import Code, Record, RunRequest, asked
from solera.bench.statistics import by_activity, by_ratings
from solera.core.errors import ConfigError, RunError
from solera.data.interactions import Interactions, Split
from solera.evaluate import Evaluation
from solera.methods import find
from solera.runs import Run, RunFolder
from solera.runs.baseline import BaselineRun
from solera.runs.costs import costs
from solera.runs.presets import preset as find_preset
from solera.runs.result import RANKINGS, READ, Bytes, Rankings, RoundEntry, RunResult, Tested

_CLOSE = 0.002  # what rounding on another machine may do to a mean


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
    >>> write(record, Path("results") / record.name)  # doctest: +SKIP
    """
    run, folder = Run.open(run_folder, data=data, data_dir=data_dir), RunFolder.open(Path(run_folder))
    config, result, history = folder.config, run.result, folder.history
    wanted = asked(label or preset or config.full_method, config, preset)
    if preset:
        _check_preset(wanted, preset)
    test = run.evaluate()
    _check_same(folder.path, Rankings.of(test), result.test)
    second = run.evaluate_again() if result.validation_item else None
    return Record(
        **_common(wanted, result.model_copy(update={"peak_bytes": peak_bytes}), run.parts, test, second),
        environment=anonymous(folder.environment),
        code=code or Code(),
        seconds=sum(entry.seconds.train + entry.seconds.evaluate for entry in history),
        bytes_until_selected=_until_selected(result, history),
        costs=costs(find(config.method, config.options, config.plugins), result.users, result.items, history),
    )


def record_of_baseline(
    wanted: RunRequest, run: BaselineRun, environment: Mapping[str, Any], code: Code, peak_bytes: int | None
) -> Record:
    """The record of a fitted baseline."""
    result = run.result.model_copy(update={"peak_bytes": peak_bytes})
    assert result.seconds_to_fit is not None  # every baseline says
    return Record(
        **_common(wanted, result, run.split, run.test, run.second),
        environment=anonymous(environment),
        code=code,
        seconds=result.seconds_to_fit,
    )


def record_of_blend(
    wanted: RunRequest, run: Run, parts: Sequence[Record], environment: Mapping[str, Any], code: Code
) -> Record:
    """The record of a blend. What its parts cost is added up."""
    moved = [part.bytes_until_selected for part in parts]
    sent = [each for each in moved if each]
    both = Bytes(up=sum(each.up for each in sent), down=sum(each.down for each in sent))
    second = None if run.parts.leaky else run.evaluate_again()
    return Record(
        **_common(wanted, run.result, run.parts, run.evaluate(), second),
        environment=anonymous(environment),
        code=code,
        seconds=sum(part.seconds for part in parts),
        bytes_until_selected=both if wanted.kind == "method" else None,
    )


def _common(
    wanted: RunRequest, result: RunResult, parts: Split, test: Evaluation, second: Evaluation | None
) -> dict[str, Any]:
    counts = test.full_ranking.counts
    with_validation = test if second is None or result.validation_item == READ else second
    return {
        **wanted.model_dump(exclude={"format"}),
        "result": result.model_copy(update={"dataset": wanted.dataset, "test": Tested.of(test)}),
        "by_activity": by_activity(parts.train.lengths[test.full_ranking.users], with_validation),
        "by_ratings": by_ratings(parts.data.by_user.lengths[test.full_ranking.users], with_validation),
        "counts": None if (counts == 1).all() else counts.tolist(),
        "ranks": test.full_ranking.places.tolist(),
        "second_ranks": second.full_ranking.places.tolist() if second else None,
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


def _check_same(path: Path, now: Rankings, then: Rankings) -> None:
    for ranking in RANKINGS:
        for metric, value in then[ranking].items():
            if abs(now[ranking][metric] - value) > _CLOSE:
                raise RunError(
                    f"the model in {path} has {ranking} {metric} {now[ranking][metric]:.4f}, "
                    f"not {value:.4f} as in its result.json: the data set or the program has changed",
                    "train it again",
                )
