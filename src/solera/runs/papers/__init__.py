"""Published tables and figures of five papers, and the settings that run each of their rows.

One TOML file per paper, beside this one:

    [datasets]              the paper's name of a data set, and Solera's
    [runs."FedMF"]          how a row is run: a method with options, `like` another run, or from a `preset`
    [[table]]               a table or a figure
    rows                    the figures of each row as printed, data set after data set, metric after metric
    about                   what differs from the paper and why
    why                     of a run or a row, by data set: why its figures are not close to the printed ones

Figures are copied as they are printed. A dash stands for one that cannot be read in the paper's text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from solera.core.errors import ConfigError, closest
from solera.core.frozen import Frozen
from solera.runs.preset import Preset, presets

PAPERS = ("pfedrec", "fedrap", "pfedclr", "fedem", "plgc")
HOME = "ml-100k"  # the data set whose preset holds where a paper names no other settings
ROUNDS = 100
PROTOCOL = "paper"
_DASH = "–"


class Published(NamedTuple):
    """A printed figure and its standard deviation, if there is one."""

    value: float
    sd: float | None = None


class DataName(Frozen):
    """What a paper's data set is called in Solera, or why there is none."""

    name: str = ""
    min_interactions: int | None = None
    missing: str = ""


class RunSettings(Frozen):
    """How a row is run. What is not given is as in the run `like`, or as in the `preset`."""

    like: str | None = None
    preset: str | None = None  # without the data set: paper:fedrap
    method: str | None = None
    baseline: str | None = None
    plugins: tuple[str, ...] = ()
    rounds: int | None = None
    options: dict[str, Any] = Field(default={})
    on: dict[str, dict[str, Any]] = Field(default={}, description="options on single data sets")
    noise: str | None = None
    dp: str | None = None
    missing: str = Field(default="", description="why it cannot be run")
    why: dict[str, str] = Field(
        default={}, description="why its figures are not close to the printed ones, by data set"
    )


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
    """The tables and figures of a paper."""

    key: str
    name: str
    title: str
    citation: str
    about: str
    datasets: dict[str, DataName]
    runs: dict[str, RunSettings]
    table: tuple[PaperTable, ...]

    @cached_property
    def tables(self) -> dict[str, PaperTable]:
        """All tables and figures by their id."""
        return {each.id: each for each in self.table}

    def preset(self, run: str, dataset: DataName, changes: dict[str, Any] | None = None) -> Preset:
        """The settings of a run on a data set, with some options changed; `noise` may be one of them."""
        settings = self._settings(run, dataset.name)
        options = settings.pop("options") | settings.pop("on", {}).get(dataset.name, {}) | (changes or {})
        noise = options.pop("noise", None)
        if noise is not None:
            settings["noise"] = f"laplace:{noise}" if noise else None
        return Preset(
            name=f"paper:{slug(run)}@{self.key}/{dataset.name}",
            dataset=dataset.name,
            min_interactions=dataset.min_interactions,
            protocol=PROTOCOL,
            source=f"{self.citation}, {run}",
            options=options,
            **settings,
        )

    def _settings(self, run: str, dataset: str) -> dict[str, Any]:
        """Settings with all that they take from another run or a preset; `on` is resolved last."""
        own = self.runs[run]
        base: dict[str, Any] = {"rounds": ROUNDS, "options": {}}
        if own.like:
            base = self._settings(own.like, dataset)
        elif own.preset:
            stored = presets().get(f"{own.preset}/{dataset}") or presets()[f"{own.preset}/{HOME}"]
            base |= stored.model_dump(include={"method", "plugins", "options", "rounds"}, exclude_none=True)
        options = base["options"] | base.get("on", {}).get(dataset, {}) | own.options
        given = own.model_dump(
            exclude={"like", "preset", "missing", "why", "options", "on"}, exclude_defaults=True
        )
        return base | given | {"options": options, "on": own.on}


@cache
def papers() -> dict[str, Paper]:
    """All papers."""
    found = {}
    for key in PAPERS:
        text = files("solera.runs.papers").joinpath(f"{key}.toml").read_text(encoding="utf-8")
        found[key] = Paper(key=key, **tomllib.loads(text))
    return found


def find_table(name: str) -> tuple[Paper, PaperTable]:
    """The table or figure called PAPER/ID, as in pfedrec/table-1."""
    key, _, table = name.lower().partition("/")
    if key not in papers():
        raise ConfigError(f"unknown paper {key!r}", f"{closest(key, list(PAPERS))}; write pfedrec/table-1")
    paper = papers()[key]
    if not table:
        raise ConfigError("no table is named", f"write {key}/table-1; solera paper list lists them")
    if table not in paper.tables:
        hint = f"{closest(table, list(paper.tables))}; solera paper list lists them"
        raise ConfigError(f"{paper.name} has no {table!r}", hint)
    return paper, paper.tables[table]


def row_preset(name: str) -> Preset | None:
    """The preset of a row, named as in paper:fedmf@pfedrec/ml-100k; None if there is none."""
    return next((preset for preset in _row_presets() if preset.name == name), None)


def row_presets() -> list[str]:
    """Names of the presets of all rows."""
    return [preset.name for preset in _row_presets()]


def _row_presets() -> Iterator[Preset]:
    for paper in papers().values():
        for run, settings in paper.runs.items():
            for dataset in paper.datasets.values():
                if dataset.name and not settings.missing:
                    yield paper.preset(run, dataset)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def slug(label: str) -> str:
    """The name of a run as a part of a preset's name."""
    return re.sub(r"[^a-z0-9.+=]+", "-", label.lower().replace("w/", "with")).strip("-")
