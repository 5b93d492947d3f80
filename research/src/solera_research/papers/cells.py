"""The cells of papers' tables: what is published, how each is run, and which records hold it.

Records with the same settings count wherever they come from: neither their label nor the table of the paper
that they were made for matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from solera.baselines import configure
from solera.core.errors import ConfigError, SoleraError, closest
from solera.data.datasets import available, info, load, subset_of
from solera.runs.presets import PAPER_PROTOCOL, DataName, Preset
from solera.runs.settings import BaselineConfig, RunConfig
from solera.study.matrix import Entry, Matrix
from solera.study.records import Record, Store
from solera.study.statistics import Spread, spread
from solera_research.papers import Paper, PaperTable, Published

RECORDS = Path("experiments") / "records" / "papers.parquet"
MIB = 2**20
_SINGLE = 4  # bytes of a number

State = Literal["run", "not run", "no data", "not implemented", "no such run"]


@dataclass(frozen=True)
class Cell:
    """A row of a table on one data set."""

    paper: Paper
    table: PaperTable
    row: str
    column: str
    published: tuple[Published | None, ...]
    data_dir: Path | None = None
    anywhere: bool = False  # whether data sets count as at hand that this machine does not have

    @property
    def dataset(self) -> DataName:
        """The data set."""
        return self.paper.dataset(self.column)

    @cached_property
    def preset(self) -> Preset | None:
        """The settings; None if there is no such run."""
        run = self.table.run_of(self.row)
        if run in self.paper.no_run or not self.dataset.name:
            return None
        return self.paper.rows.preset(run, self.dataset, self.table.changes(self.row))

    @cached_property
    def _built(self) -> RunConfig | BaselineConfig | str:
        """The settings of seed 0, or why there are none."""
        if self.preset is None:
            return self.paper.no_run.get(self.table.run_of(self.row)) or self.paper.no_data[self.column]
        settings = dict(self.preset.settings)
        where = {
            "dataset": self.preset.dataset,
            "min_interactions": settings.pop("min_interactions", None),
        }
        anywhere = self.preset.model_copy(update=_ANYWHERE | {"settings": settings})
        built = _config_of(anywhere.model_dump_json())
        return built if isinstance(built, str) else built.model_copy(update=where)

    @property
    def config(self) -> RunConfig | BaselineConfig | None:
        """The settings of seed 0, None if it cannot be run with this version."""
        return None if isinstance(self._built, str) else self._built

    @cached_property
    def problem(self) -> tuple[State, str] | None:
        """Why the cell cannot be run now, if it cannot."""
        if not self.dataset.name:
            return "no data", f"no data: {self.paper.no_data[self.column]}"
        if self.preset is None:
            return "no such run", f"cannot be run: {self._built}"
        if isinstance(self._built, str):
            return "not implemented", f"not implemented: {self._built}"
        if not self.anywhere and available(self.dataset.name, self.data_dir) == "by hand":
            return "no data", f"needs the data set {self.dataset.name}"
        return None

    @property
    def not_attempted(self) -> str:
        """Why no run is made of it, if none is."""
        return self.paper.why_not_attempted(self.table.id, self.table.run_of(self.row))

    @property
    def label(self) -> str:
        """Name of the run in records. Noise that guarantees nothing says so."""
        assert self.preset is not None and self.config is not None
        run = f"{self.paper.key}: {self.table.run_of(self.row)}"
        noise = self.config.noise if isinstance(self.config, RunConfig) else None
        if noise:
            return f"{run.removesuffix(' w/ LDP')}, {noise.label}"
        changed = {name: value for name, value in self.table.changes(self.row).items() if name != "noise"}
        return run + "".join(f", {name}={value}" for name, value in changed.items())

    def entry(self, seed: int) -> Entry:
        """The run of a seed."""
        assert self.preset is not None
        return Entry(self.label, self.preset.config(seed=seed))


_ANYWHERE = {"name": "", "source": "", "dataset": "any"}


@cache
def _config_of(preset: str) -> RunConfig | BaselineConfig | str:
    """The settings of a preset in JSON, or why there are none; the same for all data sets."""
    try:
        return Preset.model_validate_json(preset).config()
    except SoleraError as error:
        return error.message


class Stored:
    """The records of a table, found by their settings. They are read when asked for."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._keys: dict[int, dict[str, Any] | None] = {}

    def of(self, cell: Cell) -> list[Record]:
        """The records of a cell, one for every seed."""
        return [] if cell.config is None else self.find(cell.config)

    def find(self, config: RunConfig | BaselineConfig) -> list[Record]:
        """The records with these settings, one for every seed."""
        wanted = _settings(config)
        found = {
            record.seed: record
            for record in self._of_dataset.get(config.dataset, [])
            if _trained(record.config) == _trained(wanted) and self._key(record) == wanted
        }
        return [found[seed] for seed in sorted(found)]

    @cached_property
    def _of_dataset(self) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {}
        for record in Store(self._table, Record).all():
            if record.protocol == PAPER_PROTOCOL:
                found.setdefault(record.dataset, []).append(record)
        return found

    def _key(self, record: Record) -> dict[str, Any] | None:
        if id(record) not in self._keys:
            self._keys[id(record)] = _resolved(record.config)
        return self._keys[id(record)]


def _trained(config: dict[str, Any]) -> str:
    """The method or the baseline."""
    return str(config.get("method") or config.get("baseline"))


def _settings(config: RunConfig | BaselineConfig) -> dict[str, Any]:
    return config.model_dump(mode="json", exclude={"seed"})


def _resolved(config: dict[str, Any]) -> dict[str, Any] | None:
    """Settings with all defaults. An older record lacks later ones; None if they do not hold any more."""
    try:
        if "baseline" in config:
            options = configure(config["baseline"], config["options"]).model_dump(mode="json")
            return _settings(BaselineConfig.model_validate(config | {"options": options}))
        return _settings(RunConfig.model_validate(config).resolved())
    except (SoleraError, ValidationError):
        return None


@dataclass(frozen=True)
class Result:
    """A cell with its records."""

    cell: Cell
    records: Sequence[Record]

    @property
    def state(self) -> State:
        """Whether it was run, and if not, why."""
        if self.records:
            return "run"
        return self.cell.problem[0] if self.cell.problem else "not run"

    @property
    def why(self) -> str:
        """The state in words, where there are no figures."""
        if self.cell.problem:
            return self.cell.problem[1]
        return "not attempted" if self.cell.not_attempted else "not run"

    def ours(self) -> tuple[Spread | None, ...]:
        """Mean and standard deviation over seeds of every metric; None where the records have none."""
        made = []
        for metric in self.cell.table.metrics:
            values = [figure(record, metric, self.cell) for record in self.records]
            known = [value for value in values if value is not None]
            made.append(spread(known) if known else None)
        return tuple(made)


def cells(
    paper: Paper, table: PaperTable, data_dir: Path | None = None, *, anywhere: bool = False
) -> Iterator[Cell]:
    """All cells of a table of runs."""
    if table.kind != "runs":
        return
    for row in table.rows:
        for column, published in zip(table.columns, table.published(row), strict=True):
            yield Cell(paper, table, row, column, published, data_dir, anywhere)


def select(
    paper: Paper, table: PaperTable, data: str | None, only: str | None, data_dir: Path | None
) -> list[Cell]:
    """The cells on one data set, by Solera's name or the paper's, and of one row; None stands for all."""
    found = list(cells(paper, table, data_dir))
    if data is not None:
        known = {name.lower() for each in table.columns for name in (each, paper.dataset(each).name) if name}
        if data.lower() not in known:
            raise ConfigError(
                f"{paper.key}/{table.id} has no data set {data!r}", closest(data, sorted(known))
            )
        found = [c for c in found if data.lower() in (c.column.lower(), c.dataset.name)]
    if only is not None:
        rows = {row.lower(): row for row in table.rows}
        if only.lower() not in rows:
            raise ConfigError(
                f"{paper.key}/{table.id} has no row {only!r}", closest(only.lower(), sorted(rows))
            )
        found = [c for c in found if c.row == rows[only.lower()]]
    return found


def missing_runs(asked: Sequence[Cell], stored: Stored, seeds: int, records: Path) -> Matrix:
    """The runs that have no record yet, each once, for `run_matrix`."""
    entries: dict[str, Entry] = {}
    for cell in asked:
        if cell.problem:
            continue
        done = {record.seed for record in stored.of(cell)}
        for seed in (seed for seed in range(seeds) if seed not in done):
            entry = cell.entry(seed)
            entries.setdefault(entry.asked.name, entry)
    return Matrix(records, tuple(sorted(entries.values(), key=lambda entry: entry.config.seed)))


def figure(record: Record, metric: str, cell: Cell) -> float | None:
    """A metric of a record; None if it was made before the metric existed."""
    if "@" not in metric:
        return _cost(record, metric)
    bounds = cell.table.ratings.get(cell.row, {}).get(cell.dataset.name)
    if bounds:
        return _of_group(record, metric, cell.table.ranking, bounds)
    test = record.result.test_train  # as in the papers
    return None if test is None else test[cell.table.ranking].get(metric)


def _cost(record: Record, metric: str) -> float | None:
    result, costs = record.result, record.costs
    known: dict[str, float | None] = {"selected round": result.selected_round}
    if result.seconds_per_round is not None and result.selected_round is not None:
        known["seconds"] = result.seconds_per_round * result.selected_round
    if costs is not None:
        known["parameters"] = costs.client_parameters
        known["client MiB"] = costs.client_parameters * _SINGLE / MIB
        known["server MiB"] = costs.server_parameters * _SINGLE / MIB
        if costs.seconds_per_client is not None and costs.seconds_of_server is not None:
            known["seconds a round"] = costs.seconds_per_client + costs.seconds_of_server
    return known.get(metric)


def _of_group(
    record: Record, metric: str, ranking: Literal["full", "sampled99"], bounds: tuple[int, int]
) -> float | None:
    """The mean over the users whose number of ratings is within the bounds, which are those of groups."""
    least, most = bounds
    groups = [each for each in record.by_ratings if least <= each.least and each.most <= most]
    users = sum(each.users for each in groups)
    if not users:
        return None
    figures = [each.full if ranking == "full" else each.sampled99 for each in groups]
    return sum(each.users * one[metric] for each, one in zip(groups, figures, strict=True)) / users


def counted(
    dataset: DataName,
    metric: str,
    bounds: tuple[int, int] | None,
    data_dir: Path | None,
    *,
    known: bool = False,
) -> int | None:
    """A number of a data set; None if it needs data that are not here. `known` is without any data."""
    name, subset = subset_of(dataset.name)
    if not name:
        return None
    if not (subset or bounds or dataset.min_interactions):
        return int(getattr(info(name).expected, metric))
    if known or available(name, data_dir) not in ("folder", "cache"):
        return None
    data = load(dataset.name, data_dir=data_dir, min_interactions=dataset.min_interactions)
    if bounds:
        sizes = data.by_user.lengths
        return int(((sizes >= bounds[0]) & (sizes <= bounds[1])).sum())
    return {"rows": len(data), "users": data.n_users, "items": data.n_items}[metric]
