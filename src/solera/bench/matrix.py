"""A matrix: the runs of a benchmark, in one TOML file.

    results = "results"     # folder of the records, from the working directory; this is the default

    [[run]]                 # as many of these as you like; each stands for all combinations of its lists
    datasets = ["ml-100k", "filmtrust"]
    methods = ["fedmf", "fedncf+elastic-merge"]
    protocols = ["strict"]                        # default: strict
    seeds = [0, 1, 2]                             # default: 0
    rounds = 100                                  # default: 100; a method of one round takes one
    options = { embedding_size = 32 }             # of all its methods; default: none
    dp = "epsilon=8,delta=1e-5"                   # and wire, secure_aggregation = true, upload and
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

    [[tune]]                # for `solera bench tune`, which looks for these settings
    datasets = ["ml-100k"]
    methods = ["fedmf", "fedrap"]                 # and, in the same table or another, baselines
    trials = 8                                    # the same for all
    trial_rounds = 12                             # at most, of a trial,
    trial_patience = 6                            # and its patience
    rounds = 100                                  # of the presets that come of it,
    patience = 15                                 # and theirs
    space.fedmf.embedding_size = { choices = [8] }  # where this data set asks for other ranges
    first.fedmf = { embedding_size = 8 }          # the first trial, where the defaults do not fit

A data set may be a file of one's own, by its path from the working directory, with `columns` and
`min_interactions` as on the command line. Runs are made in the order of the file: data set after data set,
protocol after protocol, method after method, seed after seed. `patience` ends a run after so many rounds
that were no better on validation.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from solera.baselines import configure
from solera.bench.entries import Entry, Matrix, Tuning
from solera.bench.spaces import Range, space_of
from solera.core.errors import ConfigError, SoleraError
from solera.data.datasets import available, load, names
from solera.dp.laplace import PaperLaplace
from solera.dp.settings import DP
from solera.evaluate import get
from solera.methods import find
from solera.runs.config import ROUNDS, BaselineConfig, RunConfig, usual_rounds
from solera.runs.presets import preset

Names = Annotated[list[str], Field(min_length=1)]


_PROTECTION = ("dp", "wire", "secure_aggregation", "upload", "download")


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
    wire: str | None = None
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


class _TuneTable(BaseModel):
    """A [[tune]] table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    datasets: Names
    methods: Names = []
    baselines: Names = []
    trials: int = Field(default=8, ge=1)
    rounds: int = Field(default=ROUNDS, ge=1)
    patience: int | None = Field(default=None, ge=1)
    trial_rounds: int = Field(default=12, ge=1)
    trial_patience: int | None = Field(default=None, ge=1)
    space: dict[str, dict[str, Range]] = {}
    first: dict[str, dict[str, Any]] = {}


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    results: Annotated[str, Field(min_length=1)] = "results"
    tuning: Annotated[str, Field(min_length=1)] = "tuning"
    run: list[_Table] = []
    tune: list[_TuneTable] = []


def read_matrix(path: Path, data_dir: Path | None = None) -> Matrix:
    """Read all runs of a matrix, and check every name and option."""
    file = _read(path)
    if not file.run:
        raise ConfigError(f"{path} has no [[run]]", "docs/benchmarks.md shows a matrix")
    entries: dict[str, tuple[Entry, int]] = {}
    for number, table in enumerate(file.run, start=1):
        try:
            made = list(_entries(table))
            for dataset in dict.fromkeys(entry.config.dataset for entry in made):
                _check_dataset(dataset, table, data_dir)
        except SoleraError as error:
            raise ConfigError(f"{path}, run {number}: {error.message}", error.hint) from None
        for entry in made:
            former = entries.setdefault(entry.asked.name, (entry, number))
            if former[0] is not entry:
                raise ConfigError(
                    f"{path}, run {number}: {entry} would overwrite the record of run {former[1]}, "
                    f"{former[0]}",
                    "remove one of them, or give it a label",
                )
    return Matrix(Path(file.results), tuple(entry for entry, _ in entries.values()))


def read_tuning(path: Path) -> Matrix:
    """Read all searches of a matrix, and check every name."""
    file = _read(path)
    if not file.tune:
        raise ConfigError(f"{path} has no [[tune]]", "docs/benchmarks.md shows one")
    entries: dict[str, Entry] = {}
    for number, table in enumerate(file.tune, start=1):
        try:
            for entry in _tunings(table):
                if entries.setdefault(entry.asked.name, entry) is not entry:
                    raise ConfigError(f"{entry} is listed twice", "remove one of the two")
        except SoleraError as error:
            raise ConfigError(f"{path}, tune {number}: {error.message}", error.hint) from None
    return Matrix(Path(file.tuning), tuple(entries.values()))


def _tunings(table: _TuneTable) -> Iterator[Tuning]:
    for dataset in table.datasets:
        for name in table.methods:
            method, *plugins = name.split("+")
            usual = usual_rounds(find(method, {}, plugins))
            config = RunConfig(
                method=method,
                plugins=tuple(plugins),
                dataset=dataset,
                seed=0,
                rounds=min(usual, table.trial_rounds),
                patience=table.trial_patience if usual > 1 else None,
            )
            space = space_of(name) | table.space.get(name, {})
            rounds, patience = (table.rounds, table.patience) if usual > 1 else (usual, None)
            first = table.first.get(name, {})
            yield Tuning(name, config, None, space, table.trials, rounds, patience, first)
        for name in table.baselines:
            configure(name)
            baseline = BaselineConfig(baseline=name, dataset=dataset, seed=0)
            space = space_of(name) | table.space.get(name, {})
            yield Tuning(name, baseline, None, space, table.trials, first=table.first.get(name, {}))


def _read(path: Path) -> _File:
    hint = "docs/benchmarks.md shows a matrix"
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
    if where[0] in ("run", "tune") and len(where) > 1:
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
    rounds = usual if usual == 1 else table.rounds or usual
    config = RunConfig(
        method=method,
        plugins=tuple(plugins),
        options=table.options,
        rounds=rounds,
        patience=table.patience,
        dp=DP.parse(table.dp) if table.dp else None,
        wire=PaperLaplace.parse(table.wire) if table.wire else None,
        secure_aggregation=table.secure_aggregation,
        upload=table.upload,
        download=table.download,
        **where,
    ).resolved()
    return Entry(_label(table.label, config), config)


def _label(given: str | None, config: RunConfig) -> str:
    """Noise that guarantees nothing says so, whatever else the label is."""
    if config.wire:
        return f"{given or config.full_method}, {config.wire.label}"
    coded = "".join(f", {coding}" for coding in (config.upload, config.download) if coding)
    return given or config.full_method + (f", eps={config.dp.epsilon:g}" if config.dp else "") + coded


def _baseline(name: str, table: _Table, where: dict[str, Any]) -> Entry:
    options = configure(name, table.options).model_dump(mode="json")
    return Entry(table.label or name, BaselineConfig(baseline=name, options=options, **where))


def _check_dataset(name: str, table: _Table, data_dir: Path | None) -> None:
    """An own file is read, for its columns; a data set by name has only to be there, or on the net."""
    if name not in names():
        load(name, columns=table.columns, min_interactions=table.min_interactions)
    elif table.columns:
        raise ConfigError(f"the columns of {name!r} are already known", "remove `columns`")
    elif available(name, data_dir) == "by hand":
        load(name, data_dir=data_dir)  # says what to get, and from where
