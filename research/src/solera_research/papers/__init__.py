"""Published tables and figures of five papers.

One TOML file per paper, beside this one:

    [[table]]          a table or a figure
    rows               the figures of each row as printed, data set after data set, metric after metric
    about              what differs from the paper and why
    [no_data]          why a data set is not there
    [no_run]           why a row cannot be run
    [settings]         rows by where their settings come from
    [[not_attempted]]  cells of which no more runs are made, and why
    not_reproducible   why the paper's own method cannot be reproduced from it
    why                of a run or a row, by data set: why its figures are not close to the printed ones

How a row is run is in `paper_rows.toml` of `solera.runs`. Figures are copied as they are printed. A dash
stands for one that cannot be read in the paper's text.
"""

from __future__ import annotations

import tomllib
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from solera.core.errors import ConfigError, closest
from solera.core.frozen import Frozen
from solera.runs.presets import DataName, PaperRows, paper_rows

_DASH = "–"


class Published(NamedTuple):
    """A printed figure and its standard deviation, if there is one."""

    value: float
    sd: float | None = None


Settings = Literal["given", "open", "chosen"]


class NotAttempted(Frozen):
    """Cells of which no more runs are made: all those of some tables, or of some rows in all tables."""

    tables: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    why: str


class PaperTable(Frozen):
    """A table or a figure."""

    id: str
    title: str
    kind: Literal["runs", "data", "settings", "pictures"] = "runs"
    columns: tuple[str, ...] = Field(default=(), description="data sets as the paper calls them")
    metrics: tuple[str, ...] = ("hr@10", "ndcg@10")
    ranking: Literal["sampled99", "full"] = "sampled99"
    percent: bool = False
    of: str | None = Field(default=None, description="the run whose setting `vary` the rows are values of")
    vary: str | None = None
    values: dict[str, Any] = Field(default={}, description="value of a row, where its name is not the value")
    runs: dict[str, str] = Field(default={}, description="run of a row, where it is named otherwise")
    ratings: dict[str, dict[str, tuple[int, int]]] = Field(
        default={}, description="least and most ratings of the users that a row is about, by data set"
    )
    rows: dict[str, str] = Field(default={})
    commands: tuple[str, ...] = ()
    about: str = ""
    why: dict[str, dict[str, str]] = Field(
        default={}, description="the same of a row on a data set, where its run does not say or has changes"
    )

    @field_validator("rows", mode="before")
    @classmethod
    def _without_figures(cls, rows: Any) -> Any:
        return dict.fromkeys(rows, "") if isinstance(rows, list) else rows

    def published(self, row: str) -> list[tuple[Published | None, ...]]:
        """The printed figures of a row: for every column, one for every metric; None where there is none."""
        width, count = len(self.metrics), max(1, len(self.columns))
        texts = self.rows[row].split("|") if self.rows[row] else [_DASH] * (width * count)
        if len(texts) != width * count:
            raise ConfigError(f"{self.id}, {row}: {len(texts)} figures instead of {width * count}")
        parsed = [self._parse(text.strip()) for text in texts]
        return [tuple(parsed[start : start + width]) for start in range(0, len(parsed), width)]

    def _parse(self, text: str) -> Published | None:
        if text == _DASH:
            return None
        scale = 0.01 if self.percent else 1.0
        value, _, sd = text.replace(",", "").partition("±")
        return Published(float(value) * scale, float(sd) * scale if sd else None)

    def run_of(self, row: str) -> str:
        """The run that a row shows."""
        return self.runs.get(row) or self.of or row

    def changes(self, row: str) -> dict[str, Any]:
        """The options in which a row differs from its run."""
        if self.vary is None:
            return {}
        return {self.vary: self.values.get(row, _number(row))}


class Paper(Frozen):
    """The tables and figures of a paper. How its rows are run is in `solera.runs.presets`."""

    key: str
    name: str
    title: str
    about: str
    rows: PaperRows
    table: tuple[PaperTable, ...]
    no_data: dict[str, str] = Field(default={}, description="why a data set is not there")
    no_run: dict[str, str] = Field(default={}, description="why a row cannot be run")
    why: dict[str, dict[str, str]] = Field(
        default={}, description="why a row's figures are not close to the printed ones, by data set"
    )
    settings: dict[Settings, tuple[str, ...]] = Field(
        default={},
        description="rows with settings given by the paper or public code; with open ones, of which one set "
        "was tried; with settings chosen among several, or changed, after test figures had been seen",
    )
    not_attempted: tuple[NotAttempted, ...] = Field(default=())
    not_reproducible: str = ""

    @cached_property
    def tables(self) -> dict[str, PaperTable]:
        """All tables and figures by their id."""
        return {each.id: each for each in self.table}

    def settings_of(self, run: str) -> Settings:
        """Where the settings of a row come from."""
        return next((kind for kind, runs in self.settings.items() if run in runs), "chosen")

    def why_not_attempted(self, table: str, run: str) -> str:
        """Why no run is made of a cell, if none is."""
        found = (each.why for each in self.not_attempted if table in each.tables or run in each.rows)
        return next(found, "")

    def dataset(self, column: str) -> DataName:
        """The data set of a column."""
        return DataName() if column in self.no_data else self.rows.datasets[column]


@cache
def papers() -> dict[str, Paper]:
    """All papers."""
    found = {}
    for key, rows in paper_rows().items():
        text = files("solera_research.papers").joinpath(f"{key}.toml").read_text(encoding="utf-8")
        found[key] = Paper(key=key, rows=rows, **tomllib.loads(text))
    return found


def find_table(name: str) -> tuple[Paper, PaperTable]:
    """The table or figure called PAPER/ID, as in pfedrec/table-1."""
    key, _, table = name.lower().partition("/")
    if key not in papers():
        raise ConfigError(f"unknown paper {key!r}", f"{closest(key, list(papers()))}; write pfedrec/table-1")
    paper = papers()[key]
    if not table:
        raise ConfigError("no table is named", f"write {key}/table-1; solera paper show lists them")
    if table not in paper.tables:
        hint = f"{closest(table, list(paper.tables))}; solera paper show lists them"
        raise ConfigError(f"{paper.name} has no {table!r}", hint)
    return paper, paper.tables[table]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
