"""A run as its folder records it, with what only its data set can add where that is at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solera.core.errors import RunError, SoleraError
from solera.data.datasets import available, names
from solera.data.interactions import Interactions
from solera.evaluate import get
from solera.runs import RoundEntry, Run, RunConfig, RunFolder, RunResult
from solera.runs.baseline import validate_baseline
from solera.runs.result import RANKINGS, Ranking, Rankings, flat
from solera.study.records import UserGroup
from solera.study.statistics import SHOWN, Interval, by_activity, interval


@dataclass(frozen=True, eq=False)
class Users:
    """The users of one run: intervals of means over them, and how those of like activity fare."""

    data: Interactions
    intervals: Mapping[Ranking, Mapping[str, Interval]]  # of "hr@10" and "ndcg@10"
    popularity: Rankings  # what recommending the most popular items reaches on validation items
    groups: Sequence[UserGroup]


def users_of(path: Path, result: RunResult, data: Interactions) -> Users:
    """Rank a finished run's test items again. Raise an error if the recorded metrics are not reproduced."""
    run = Run.open(path, data=data)
    test, parts = run.evaluate_again(result.main[0]), run.parts
    rankings = zip(RANKINGS, (test.full_ranking, test.sampled99_ranking), strict=True)
    intervals = {
        kind: {metric: interval(ranking.per_user[metric]) for metric in SHOWN} for kind, ranking in rankings
    }
    sizes = parts.train.lengths[test.full_ranking.users]
    return Users(
        data,
        intervals,
        validate_baseline("popularity", parts, seed=result.seed),
        by_activity(sizes, test),
    )


@dataclass(frozen=True, eq=False)
class Recorded:
    """One run on the page. `result` is None while it is unfinished, `users` where the data is not at hand."""

    number: int  # its place on the page, and its colour
    label: str
    leaky: bool
    path: Path
    config: RunConfig
    environment: Mapping[str, Any]
    history: Sequence[RoundEntry]
    result: RunResult | None
    users: Users | None
    without_users: str  # why there are none

    @property
    def title(self) -> str:
        """Its name wherever it appears: a leaky run says so."""
        return f"{self.label} (LEAKY)" if self.leaky else self.label

    @property
    def split(self) -> tuple[str, ...]:
        """What tells its data and their split from those of others."""
        config = self.config
        return config.dataset, config.protocol, str(config.min_interactions), str(config.columns)

    @property
    def tested(self) -> str:
        """The test that is shown; none of an unfinished run."""
        return self.result.main[0] if self.result else ""

    @property
    def dataset(self) -> str:
        """The data set's name; of an own file, the file's without its folder."""
        return data_name(self.config.dataset)


def data_name(dataset: str) -> str:
    """A data set's name, without the folder of an own file."""
    return dataset if dataset in names() else Path(dataset).name


def read_runs(
    paths: Sequence[Path],
    *,
    data_dir: Path | None = None,
    use_data: bool = True,
    tell: Callable[[str], None] = lambda path: None,
) -> list[Recorded]:
    """The runs of these folders, those of one data set and protocol together, leaky ones last.

    With `use_data`, test items are ranked again where the data set is at hand; nothing is downloaded.
    `tell` hears of each folder.
    """
    folders = [RunFolder.open(path) for path in dict.fromkeys(paths)]
    folders.sort(
        key=lambda each: (get(each.config.protocol).leaky, each.config.dataset, each.config.protocol)
    )
    labels = _labels(folders)
    shelf: dict[str, Interactions] = {}
    found = []
    for number, (label, folder) in enumerate(zip(labels, folders, strict=True)):
        found.append(_read(number, label, folder, shelf=shelf, data_dir=data_dir, use_data=use_data))
        tell(str(folder.path))
    return found


def _read(
    number: int,
    label: str,
    folder: RunFolder,
    *,
    shelf: dict[str, Interactions],
    data_dir: Path | None,
    use_data: bool,
) -> Recorded:
    config, result = folder.config, folder.result
    history = folder.history if (folder.path / "history.jsonl").exists() else []
    if result and (result.selected_round or 0) > len(history):
        raise RunError(
            f"{folder.path}: the history ends before the selected round", "train again into a new folder"
        )
    users, why = None, ""
    if result is None:
        why = "the run is unfinished"
    elif not use_data:
        why = "made without the data set"
    elif not _at_hand(config, data_dir):
        why = f"the data set {data_name(config.dataset)} is not at hand"
    else:
        try:
            users = users_of(folder.path, result, _load(config, shelf, data_dir))
        except SoleraError as error:
            why = error.message.replace(str(folder.path), folder.path.name)
    return Recorded(
        number=number,
        label=label,
        leaky=get(config.protocol).leaky,
        path=folder.path,
        config=config,
        environment=folder.environment,
        history=history,
        result=result,
        users=users,
        without_users=why,
    )


def _labels(folders: Sequence[RunFolder]) -> list[str]:
    """Method names, with as much of data set, protocol and seed as it takes to tell the runs apart."""
    parts = [
        (
            each.config.full_method,
            data_name(each.config.dataset),
            each.config.protocol,
            f"s{each.config.seed}",
        )
        for each in folders
    ]
    told = [number for number in range(4) if number == 0 or len({part[number] for part in parts}) > 1]
    labels = [" · ".join(part[number] for number in told) for part in parts]
    return [
        label if labels.count(label) == 1 else f"{label} · {folder.path.resolve().name}"
        for label, folder in zip(labels, folders, strict=True)
    ]


def _at_hand(config: RunConfig, data_dir: Path | None) -> bool:
    if config.dataset in names():
        return available(config.dataset, data_dir) in {"folder", "cache"}
    return Path(config.dataset).is_file()


def _load(config: RunConfig, shelf: dict[str, Interactions], data_dir: Path | None) -> Interactions:
    """Load a data set once for all runs that share it."""
    key = repr((config.dataset, config.min_interactions, config.columns))
    if key not in shelf:
        shelf[key] = config.load_data(data_dir)
    return shelf[key]


def flatten(content: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Nested entries under names joined with dots, lists as text."""
    for key, value in flat(content):
        yield key, (", ".join(map(str, value)) or "none") if isinstance(value, list | tuple) else value
