"""From a finished run to its record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from solera.bench.machine import anonymous
from solera.bench.records import Asked, Code, Figures, Record, Seconds, Traffic, asked
from solera.bench.statistics import by_activity
from solera.core.errors import ConfigError, RunError
from solera.data.interactions import Interactions
from solera.data.split import Split
from solera.evaluate import Evaluation, split
from solera.runs import Run, RunFolder
from solera.runs.baseline import BaselineRun
from solera.runs.presets import preset as find_preset
from solera.runs.result import figures

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
    _check_same(folder.path, figures(test), result["test"])
    parts = split(run.data, config.protocol)
    return Record(
        **_common(wanted, result, parts, test),
        environment=anonymous(folder.environment),
        code=code or Code(),
        rounds=result["rounds"],
        selected_round=result["selected_round"],
        seconds=Seconds(
            total=sum(sum(entry["seconds"].values()) for entry in history),
            per_round=result["seconds_per_round"],
        ),
        bytes=_traffic(result, history),
        privacy=result.get("privacy"),
        peak_bytes=peak_bytes,
    )


def record_of_baseline(
    wanted: Asked, run: BaselineRun, environment: Mapping[str, Any], code: Code, peak_bytes: int | None
) -> Record:
    """The record of a fitted baseline."""
    return Record(
        **_common(wanted, run.result, run.split, run.test),
        environment=anonymous(environment),
        code=code,
        seconds=Seconds(total=run.result["seconds_to_fit"]),
        peak_bytes=peak_bytes,
    )


def _common(wanted: Asked, result: Mapping[str, Any], parts: Split, test: Evaluation) -> dict[str, Any]:
    counts = test.full_ranking.counts
    return {
        **wanted.model_dump(),
        "leaky": result["leaky"],
        "figures": Figures.model_validate({"test": figures(test), "validation": result["validation"]}),
        "by_activity": by_activity(parts.train.lengths[test.full_ranking.users], test),
        "counts": None if (counts == 1).all() else counts.tolist(),
        "ranks": test.full_ranking.places.tolist(),
    }


def _traffic(result: Mapping[str, Any], history: list[dict[str, Any]]) -> Traffic:
    """What an average client sends: where clients are sampled, most sit out some rounds."""
    until = history[: result["selected_round"]]
    totals = {
        f"{way}_until_selected": sum(entry["bytes"][way] * entry["clients"] for entry in until)
        / result["users"]
        for way in ("up", "down")
    }
    return Traffic(**result["bytes"], **totals)


def _check_preset(wanted: Asked, preset: str) -> None:
    config = find_preset(preset).config(protocol=wanted.protocol, seed=wanted.seed)
    difference = wanted.difference(asked(wanted.label, config, preset))
    if difference:
        raise ConfigError(f"not a run of {preset!r}: {difference}", "leave the preset out, and give a label")


def _check_same(path: Path, now: Mapping[str, Any], then: Mapping[str, Any]) -> None:
    for ranking, means in then.items():
        for metric, value in means.items():
            if abs(now[ranking][metric] - value) > _CLOSE:
                raise RunError(
                    f"the model in {path} has {ranking} {metric} {now[ranking][metric]:.4f}, "
                    f"not {value:.4f} as in its result.json: the data set or the program has changed",
                    "train it again",
                )
