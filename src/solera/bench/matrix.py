"""A matrix: the runs of a benchmark, in one TOML file.

    results = "results"     # folder of the records, from the working directory; this is the default

    [[run]]                 # as many of these as you like; each stands for all combinations of its lists
    datasets = ["ml-100k", "filmtrust"]
    methods = ["fedmf", "fedncf+elastic-merge"]
    protocols = ["strict"]                        # default: strict
    seeds = [0, 1, 2]                             # default: 0
    rounds = 100                                  # default: 100; a method of one round takes one
    options = { embedding_size = 32 }             # of all its methods; default: none
    dp = "epsilon=8,delta=1e-5"                   # and noise, secure_aggregation = true, upload and
                                                  # download: as on the command line; default: none

    [[run]]
    presets = ["paper:fedrap/ml-100k"]            # have data set, rounds and options of their own, and a
    protocols = ["paper", "strict"]               # protocol that holds where none is given
    seeds = [0, 1, 2]

    [[run]]
    datasets = ["ml-100k"]
    baselines = ["ease", "ials"]                  # centralized; no rounds
    label = "…"                                   # name in tables; default: the method's with its plug-ins

    [[run]]
    datasets = ["ml-100k"]
    methods = ["fedrap"]
    tuned = true                                  # those of the preset strict:fedrap/ml-100k

    [[tune]]                # settings by equal tuning, then final runs; see `bench/tunings.py`
    datasets = ["ml-100k"]
    methods = ["fedmf", "fedrap"]
    seeds = [0, 1, 2]

    [[blend]]               # two of the runs as one model; see `bench/blends.py`
    of = ["fedslist", "fedsasrec"]

A data set may be a file of one's own, by its path from the working directory, with `columns` and
`min_interactions` as on the command line. Runs are made in the order of the file: data set after data set,
protocol after protocol, method after method, seed after seed. `patience` ends a run after so many rounds
that were no better on validation.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from solera.baselines import configure
from solera.bench.blends import Blending, BlendTable, blends
from solera.bench.entries import Entry, Matrix, Tuning
from solera.bench.tunings import TuneTable, tunings
from solera.core.errors import ConfigError, SoleraError
from solera.data.datasets import available, load, names
from solera.evaluate import get
from solera.methods import find
from solera.runs.presets import preset
from solera.runs.settings import BaselineConfig, RunConfig, usual_rounds

Names = Annotated[list[str], Field(min_length=1)]


_PROTECTION = ("dp", "noise", "secure_aggregation", "upload", "download")


class _Table(BaseModel):
    """A [[run]] table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    datasets: Names | None = None
    methods: Names | None = None
    presets: Names | None = None
    baselines: Names | None = None
    protocols: Names | None = None
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] = [0]
    rounds: int | None = Field(default=None, ge=1)
    patience: int | None = Field(default=None, ge=1)
    tuned: bool = False
    options: dict[str, Any] = {}
    label: Annotated[str, Field(min_length=1)] | None = None
    columns: dict[str, str] | None = None
    min_interactions: int | None = Field(default=None, ge=0)
    dp: str | None = None
    noise: str | None = None
    secure_aggregation: bool = False
    upload: str | None = None
    download: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = [kind for kind in ("methods", "presets", "baselines") if getattr(self, kind)]
        if len(given) != 1:
            raise ValueError(
                f"give either methods, presets or baselines; found {' and '.join(given) or 'none'}"
            )
        if not self.presets and not self.datasets:
            raise ValueError("datasets are missing")
        own = ("datasets", "rounds", "patience", "options", "columns", "min_interactions", "tuned")
        useless = [key for key in (own if self.presets else ()) if getattr(self, key)]
        useless += [key for key in _PROTECTION if not self.methods and getattr(self, key)]
        useless += [key for key in ("rounds", "patience") if self.baselines and getattr(self, key)]
        if useless:
            raise ValueError(f"{given[0]} cannot be combined with {' or '.join(useless)}")
        fixed = [key for key in (*own[1:-1], *_PROTECTION) if getattr(self, key)] if self.tuned else []
        if fixed:
            raise ValueError(f"tuned settings cannot be combined with {' or '.join(fixed)}")
        return self


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    results: Annotated[str, Field(min_length=1)] = "results"
    tuning: Annotated[str, Field(min_length=1)] = "tuning"
    run: list[_Table] = []
    tune: list[TuneTable] = []
    blend: list[BlendTable] = []


def read_matrix(path: Path, data_dir: Path | None = None) -> Matrix:
    """Read all runs of a matrix, and check every name and option; those with tuning come first."""
    file = _read(path)
    cells = _cells(path, file, data_dir)
    if not file.run and not cells:
        raise ConfigError(f"{path} has no [[run]]", "docs/guides/studies.md shows a matrix")
    taken: dict[str, tuple[Entry, str]] = {}
    for cell in cells:
        taken |= dict.fromkeys(cell.final_names, (cell, "a tuning"))
    entries: list[Entry] = []
    for number, table in enumerate(file.run, start=1):
        try:
            made = list(_entries(table))
            for dataset in dict.fromkeys(entry.config.dataset for entry in made):
                _check_dataset(dataset, table, data_dir)
        except SoleraError as error:
            raise ConfigError(f"{path}, run {number}: {error.message}", error.hint) from None
        for entry in made:
            former, where = taken.setdefault(entry.asked.name, (entry, f"run {number}"))
            if former is not entry:
                raise ConfigError(
                    f"{path}, run {number}: {entry} would overwrite the record of {where}, {former}",
                    "remove one of them, or give it a label",
                )
            entries.append(entry)
    return Matrix(Path(file.results), (*cells, *_with_blends(path, file, entries, taken)))


def _with_blends(
    path: Path, file: _File, entries: list[Entry], taken: dict[str, tuple[Entry, str]]
) -> list[Entry]:
    """The runs, with blends in place of those that they are made of."""
    made: list[Blending] = []
    for number, table in enumerate(file.blend, start=1):
        try:
            made += blends(table, entries, Path(file.results))
        except SoleraError as error:
            raise ConfigError(f"{path}, blend {number}: {error.message}", error.hint) from None
    for entry in made:
        former, where = taken.setdefault(entry.asked.name, (entry, "a blend"))
        if former is not entry:
            raise ConfigError(
                f"{path}: the blend {entry} would overwrite the record of {where}, {former}",
                "give it another label",
            )
    parts = [part for entry in made for part in entry.parts]
    return [*(entry for entry in entries if entry not in parts), *made]


def read_tuning(path: Path) -> Matrix:
    """Read all searches of a matrix, without the final runs, and check every name."""
    file = _read(path)
    if not file.tune:
        raise ConfigError(f"{path} has no [[tune]]", "docs/guides/studies.md shows one")
    searches = (replace(entry, seeds=()) for entry in _tunings(path, file))
    return Matrix(Path(file.tuning), tuple(searches))


def _cells(path: Path, file: _File, data_dir: Path | None) -> list[Tuning]:
    """The searches that are followed by final runs."""
    cells = [entry for entry in _tunings(path, file) if entry.seeds]
    for dataset in dict.fromkeys(entry.config.dataset for entry in cells):
        _check_dataset(dataset, None, data_dir)
    return cells


def _tunings(path: Path, file: _File) -> list[Tuning]:
    entries: dict[str, Tuning] = {}
    for number, table in enumerate(file.tune, start=1):
        try:
            for entry in tunings(table, Path(file.tuning), Path(file.results)):
                if entries.setdefault(entry.asked.name, entry) is not entry:
                    raise ConfigError(f"{entry} is listed twice", "remove one of the two")
        except SoleraError as error:
            raise ConfigError(f"{path}, tune {number}: {error.message}", error.hint) from None
    return list(entries.values())


def _read(path: Path) -> _File:
    hint = "docs/guides/studies.md shows a matrix"
    try:
        return _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"the matrix {path} cannot be read: {error.strerror}", "give a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint) from None
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ConfigError(f"{path}, {_place(wrong['loc'])}{_message(wrong)}", hint) from None


def _place(where: tuple[int | str, ...]) -> str:
    if where[0] in ("run", "tune", "blend") and len(where) > 1:
        where = (f"{where[0]} {int(where[1]) + 1}", *where[2:])
    return "".join(f"{part}: " for part in where)


def _message(wrong: Any) -> str:
    if wrong["type"] == "extra_forbidden":
        return "no such setting"
    return str(wrong["msg"]).removeprefix("Value error, ")


def _entries(table: _Table) -> Iterator[Entry]:
    if table.presets:
        yield from _of_presets(table)
        return
    everything = product(
        table.datasets or [],
        table.protocols or ["strict"],
        table.methods or table.baselines or [],
        table.seeds,
    )
    for dataset, protocol, name, seed in everything:
        get(protocol)
        where = {
            "dataset": dataset,
            "protocol": protocol,
            "seed": seed,
            "columns": table.columns,
            "min_interactions": table.min_interactions,
        }
        if table.tuned:
            chosen = preset(f"strict:{name}/{dataset}")
            yield Entry(table.label or name, chosen.config(protocol=protocol, seed=seed), chosen.name)
        else:
            yield _method(name, table, where) if table.methods else _baseline(name, table, where)


def _of_presets(table: _Table) -> Iterator[Entry]:
    for name in table.presets or []:
        chosen = preset(name)
        for protocol, seed in product(table.protocols or [chosen.protocol], table.seeds):
            get(protocol)
            yield Entry(table.label or name, chosen.config(protocol=protocol, seed=seed), name)


def _method(name: str, table: _Table, where: dict[str, Any]) -> Entry:
    method, *plugins = name.split("+")
    built = find(method, table.options, plugins)
    usual = usual_rounds(built)
    settings = {key: getattr(table, key) for key in (*_PROTECTION, "options", "patience")}
    rounds = usual if usual == 1 else table.rounds or usual
    config = RunConfig.model_validate(
        {"method": method, "plugins": plugins, "rounds": rounds} | settings | where
    ).resolved()
    return Entry(_label(table.label, config), config)


def _label(given: str | None, config: RunConfig) -> str:
    """Noise that guarantees nothing says so, whatever else the label is."""
    if config.noise:
        return f"{given or config.full_method}, {config.noise.label}"
    coded = "".join(f", {coding}" for coding in (config.upload, config.download) if coding)
    return given or config.full_method + (f", eps={config.dp.epsilon:g}" if config.dp else "") + coded


def _baseline(name: str, table: _Table, where: dict[str, Any]) -> Entry:
    options = configure(name, table.options).model_dump(mode="json")
    return Entry(table.label or name, BaselineConfig(baseline=name, options=options, **where))


def _check_dataset(name: str, table: _Table | None, data_dir: Path | None) -> None:
    """An own file is read, for its columns; a data set by name has only to be there, or on the net."""
    columns, least = (table.columns, table.min_interactions) if table else (None, None)
    if name not in names():
        load(name, columns=columns, min_interactions=least)
    elif columns:
        raise ConfigError(f"the columns of {name!r} are already known", "remove `columns`")
    elif available(name, data_dir) == "by hand":
        load(name, data_dir=data_dir)  # says what to get, and from where
