"""A matrix: the runs of a benchmark, in one TOML file; docs/guides/studies.md says what it may contain.

Runs are made in the order of the file: those with tuning first, then data set after data set, protocol after
protocol, method after method, seed after seed, and blends last.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, ValidationError, model_validator

from solera.baselines import BASELINES, configure
from solera.core.errors import ConfigError, SoleraError
from solera.core.frozen import Frozen
from solera.core.text import counted
from solera.data.datasets import available, load, names
from solera.evaluate import get
from solera.methods import find
from solera.runs.presets import Preset, preset, presets
from solera.runs.settings import SETTINGS, BaselineConfig, RunConfig, usual_rounds
from solera.study.budget import Effort, full_length
from solera.study.records import Record, RunRequest, Store, asked
from solera.study.search_space import Range, Space, as_json, space_of
from solera.study.trials import Study

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0)]
Label = Annotated[str, Field(min_length=1)]

_SETTINGS = set(SETTINGS) - {"protocol", "seed"}  # of all runs of a table
_PLACE = ("dataset", "protocol", "seed", "columns", "min_interactions")  # settings that are not of the model
_PAPER = "paper"
_USUAL = "ml-100k"  # whose published settings stand in where a paper has none for a data set
_PUBLISHED = 2  # published settings that are tried, at most
_HINT = "docs/guides/studies.md shows a matrix"


@dataclass(frozen=True)
class Entry:
    """One run of a matrix."""

    label: str
    config: RunConfig | BaselineConfig
    preset: str | None = None
    makes: ClassVar[type[RunRequest]] = Record

    @cached_property
    def asked(self) -> RunRequest:
        """The request that the record will contain."""
        return asked(self.label, self.config, self.preset)

    @property
    def names(self) -> list[str]:
        """The results that it makes."""
        return [self.asked.name]

    def difference(self, found: RunRequest) -> str:
        """How a record differs from this request; empty if it does not.

        A record from before an option existed differs if the request has another value than its default.
        """
        known, given = found.config.get("options", {}), self.asked.config.get("options", {})
        new = {name: value for name, value in given.items() if name not in known}
        usual = self._default_options() if new else {}
        return found.difference(self.asked) or ", ".join(
            f"no {name} instead of {value!r}" for name, value in new.items() if value != usual.get(name)
        )

    def _default_options(self) -> dict[str, Any]:
        if isinstance(self.config, RunConfig):
            return self.config.model_copy(update={"options": {}, "dp": None}).resolved().options
        return configure(self.config.baseline).model_dump(mode="json")

    def is_recorded(self, results: Store[Record]) -> bool:
        """Whether there is a record with these settings."""
        found = results.requests().get(self.asked.name)
        return found is not None and not self.difference(found)

    def complete(self, found: RunRequest, results: Store[Record]) -> bool:
        """Whether nothing of the entry is left to run, given its record."""
        return True

    @property
    def title(self) -> str:
        """Name shown while the entry runs."""
        return self.label

    def __str__(self) -> str:
        return f"{self.label} on {self.asked.dataset}, {self.config.protocol}, seed {self.config.seed}"


@dataclass(frozen=True)
class Tuning(Entry):
    """A search for settings, whose record is a study, and the final runs with the best of them."""

    space: Space = field(default_factory=dict)
    effort: Effort = field(default_factory=Effort)
    first: tuple[dict[str, Any], ...] = ({},)  # settings of the first trials
    seeds: tuple[int, ...] = ()  # of the final runs
    makes: ClassVar[type[RunRequest]] = Study

    @cached_property
    def asked(self) -> RunRequest:
        """The request that the study will contain."""
        base = super().asked
        more = {"effort": self.effort.model_dump(mode="json"), "first": list(self.first)}
        return base.model_copy(update={"config": base.config | more})

    @property
    def names(self) -> list[str]:
        """The results of the final runs."""
        runs = (self.config.model_copy(update={"seed": seed}) for seed in self.seeds)
        return [asked(self.label, run).name for run in runs]

    def difference(self, found: RunRequest) -> str:
        """How a study differs from this search, by its settings or by the ranges it was made in."""
        if (of_settings := super().difference(found)) or not isinstance(found, Study):
            return of_settings
        ranges = as_json(self.space)
        changed = sorted(name for name in ranges | found.space if ranges.get(name) != found.space.get(name))
        return f"other ranges of {', '.join(changed)}" if changed else ""

    def with_options(self, options: dict[str, Any], users: int | None) -> RunConfig | BaselineConfig:
        """A full-length run on so many users."""
        if isinstance(self.config, RunConfig):
            config = self.config.model_copy(update={"options": options})
            return full_length(config, self.effort, users).resolved()
        taken = configure(self.config.baseline, options).model_dump(mode="json")
        return self.config.model_copy(update={"options": taken})

    @property
    def total(self) -> int:
        """Passes of the search and of all final runs at most."""
        return (self.effort.trials + len(self.seeds)) * self.effort.passes

    def finals(self, study: Study) -> list[Entry]:
        """The final runs with the study's best settings, one for each seed."""
        chosen = self.with_options(study.best.options, study.users)
        return [Entry(self.label, chosen.model_copy(update={"seed": seed})) for seed in self.seeds]

    def missing(self, study: Study, results: Store[Record]) -> list[Entry]:
        """The final runs that have no record with these settings."""
        return [entry for entry in self.finals(study) if not entry.is_recorded(results)]

    def complete(self, found: RunRequest, results: Store[Record]) -> bool:
        """Whether all final runs are done too."""
        assert isinstance(found, Study)
        try:
            return not self.missing(found, results)
        except SoleraError:  # no settings are left
            return False

    @property
    def title(self) -> str:
        """Name shown while the entry runs."""
        return f"{self.label}, tuning" + (" and final runs" if self.seeds else "")

    def __str__(self) -> str:
        where = f"{self.label} on {self.asked.dataset}, {self.config.protocol}"
        trials = counted(self.effort.trials if self.space else len(self.first), "trial", "trials")
        final = f", then {counted(len(self.seeds), 'final run', 'final runs')}" if self.seeds else ""
        return f"{where}, {trials}{final}"


@dataclass(frozen=True)
class Blend(Entry):
    """Two runs, whose records it writes too, and their blend. Its config is that of the first."""

    parts: tuple[Entry, ...] = ()

    @cached_property
    def asked(self) -> RunRequest:
        """The request that the record will contain. A blend is federated if both parts are."""
        base, parts = super().asked, [part.asked for part in self.parts]
        settings: dict[str, Any] = {key: base.config[key] for key in _PLACE}
        for name, part in zip(("first", "second"), parts, strict=True):
            settings[name] = {key: value for key, value in part.config.items() if key not in _PLACE}
        federated = all(part.kind == "method" for part in parts)
        return base.model_copy(
            update={"kind": "method" if federated else "baseline", "preset": None, "config": settings}
        )

    def complete(self, found: RunRequest, results: Store[Record]) -> bool:
        """Whether both runs have their records too."""
        return all(part.is_recorded(results) for part in self.parts)

    @property
    def title(self) -> str:
        """Name shown while the entry runs."""
        return f"{self.label}, both and their blend"

    def __str__(self) -> str:
        return f"{super().__str__()}, a blend"


@dataclass(frozen=True)
class Matrix:
    """The runs of a benchmark, and where their records are."""

    results: Path
    entries: tuple[Entry, ...]
    tuning: Path = Path("tuning")

    def store(self, kind: type[RunRequest]) -> Store[Any]:
        """Where records of that kind are."""
        return Store(self.tuning if kind is Study else self.results, kind)

    @property
    def stores(self) -> dict[type[RunRequest], Store[Any]]:
        """All tables that its entries write to."""
        kinds = {entry.makes for entry in self.entries}
        return {kind: self.store(kind) for kind in (kinds | {Record} if Study in kinds else kinds)}


class _RunTable(Frozen):
    """A [[run]] table of the file, in which the settings of its runs stand beside everything else."""

    datasets: Names | None = None
    methods: Names | None = None
    presets: Names | None = None
    baselines: Names | None = None
    protocols: Names | None = None
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)
    tuned: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    label: Label | None = None
    settings: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        settings = {key: value for key, value in given.items() if key in _SETTINGS}
        return {key: value for key, value in given.items() if key not in settings} | {"settings": settings}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = [kind for kind in ("methods", "presets", "baselines") if getattr(self, kind)]
        if len(given) != 1:
            raise ValueError(
                f"give either methods, presets or baselines; found {' and '.join(given) or 'none'}"
            )
        if not self.presets and not self.datasets:
            raise ValueError("datasets are missing")
        fixed = [*self.settings, *(["options"] if self.options else [])]
        useless: list[str] = []
        if self.presets:
            useless = [key for key in ("datasets", "tuned") if getattr(self, key)] + fixed
        elif self.baselines:
            useless = [key for key in self.settings if key not in BaselineConfig.model_fields]
        if useless:
            raise ValueError(f"{given[0]} cannot be combined with {' or '.join(useless)}")
        if self.tuned and fixed:
            raise ValueError(f"tuned settings cannot be combined with {' or '.join(fixed)}")
        return self

    def entries(self) -> Iterator[Entry]:
        """All combinations of its lists."""
        for name in self.presets or ():
            chosen = preset(name)
            for protocol, seed in product(self.protocols or [chosen.protocol], self.seeds):
                get(protocol)
                yield Entry(self.label or name, chosen.config(protocol=protocol, seed=seed), name)
        protocols, models = self.protocols or ["strict"], self.methods or self.baselines or ()
        for dataset, protocol, name, seed in product(self.datasets or (), protocols, models, self.seeds):
            get(protocol)
            settings = self.settings | {"dataset": dataset, "protocol": protocol, "seed": seed}
            if self.tuned:
                chosen = preset(f"strict:{name}/{dataset}")
                yield Entry(self.label or name, chosen.config(protocol=protocol, seed=seed), chosen.name)
            elif self.methods:
                config = self._of_method(name, settings)
                yield Entry(self._label(config), config)
            else:
                settings |= {
                    "baseline": name,
                    "options": configure(name, self.options).model_dump(mode="json"),
                }
                yield Entry(self.label or name, BaselineConfig.model_validate(settings))

    def _of_method(self, name: str, settings: dict[str, Any]) -> RunConfig:
        method, *plugins = name.split("+")
        usual = usual_rounds(find(method, self.options, plugins))
        settings |= {"method": method, "plugins": plugins, "options": self.options}
        if usual == 1 or "rounds" not in settings:
            settings["rounds"] = usual
        return RunConfig.model_validate(settings).resolved()

    def _label(self, config: RunConfig) -> str:
        """Noise that guarantees nothing says so, whatever else the label is."""
        if config.noise:
            return f"{self.label or config.full_method}, {config.noise.label}"
        coded = "".join(f", {coding}" for coding in (config.upload, config.download) if coding)
        private = f", eps={config.dp.epsilon:g}" if config.dp else ""
        return self.label or config.full_method + private + coded


class _TuneTable(Effort):
    """A [[tune]] table of the file."""

    datasets: Names
    methods: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    protocols: Names = ("strict",)
    seeds: tuple[Seed, ...] = ()
    evaluate_users: int | None = Field(default=None, ge=1)
    space: dict[str, dict[str, Range]] = Field(default_factory=dict)
    first: dict[str, dict[str, Any]] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)

    def entries(self) -> Iterator[Tuning]:
        """All searches: data set after data set, protocol after protocol, method after method."""
        for dataset, protocol in product(self.datasets, self.protocols):
            get(protocol)
            for name in (*self.baselines, *self.methods):
                yield Tuning(
                    self.labels.get(name, name),
                    self._config(name, dataset, protocol),
                    space=space_of(name) | self.space.get(name, {}),
                    effort=Effort.model_validate(self.model_dump(include=set(Effort.model_fields))),
                    first=_distinct(name, [*_published(name, dataset), self.first.get(name, {})]),
                    seeds=self.seeds,
                )

    def _config(self, name: str, dataset: str, protocol: str) -> RunConfig | BaselineConfig:
        where = {"dataset": dataset, "protocol": protocol}
        if name in self.baselines:
            configure(name)
            return BaselineConfig.model_validate({"baseline": name} | where)
        method, *plugins = name.split("+")
        find(method, {}, plugins)
        settings = {"method": method, "plugins": plugins, "evaluate_users": self.evaluate_users}
        return RunConfig.model_validate(settings | where)


def _published(name: str, dataset: str) -> list[dict[str, Any]]:
    """The settings of the method's paper on the data set, else of its paper on a usual one or another."""
    found = [each for each in presets().values() if each.protocol == _PAPER and each.full_method == name]
    plain = [each for each in found if not {"dp", "noise"} & each.settings.keys()]

    def nearness(each: Preset) -> int:
        return (each.dataset == dataset) * 2 + (each.dataset == _USUAL)

    nearest = max(map(nearness, plain), default=0)
    return [each.options for each in plain if nearness(each) == nearest]


def _distinct(name: str, given: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Each of the settings once, whether or not they name their defaults; the last are always there."""
    found: dict[str, dict[str, Any]] = {}
    *papers, last = given
    method, *plugins = name.split("+")
    for options in (*papers[:_PUBLISHED], last):
        config = configure(name, options) if name in BASELINES else find(method, options, plugins).config
        found.setdefault(config.model_dump_json(), options)
    return tuple(found.values())


class _BlendTable(Frozen):
    """A [[blend]] table of the file."""

    of: tuple[str, str]
    label: Label | None = None

    def entries(self, runs: Sequence[Entry]) -> list[Blend]:
        """All blends of these runs: one for each data set, protocol and seed that both labels have."""
        first, second = ([run for run in runs if run.label == label] for label in self.of)
        pairs = [(one, other) for one in first for other in second if _place(one) == _place(other)]
        if not pairs:
            raise ConfigError(
                f"no run of {self.of[0]!r} has the data set, protocol and seed of one of {self.of[1]!r}",
                "name the labels of two runs of the matrix; the label of a preset is its name",
            )
        label = self.label or " & ".join(self.of)
        return [Blend(label, pair[0].config, parts=pair) for pair in pairs]


def _place(entry: Entry) -> tuple[Any, ...]:
    return tuple(getattr(entry.config, name) for name in _PLACE)


class _File(Frozen):
    results: Label = "results"
    tuning: Label = "tuning"
    run: tuple[_RunTable, ...] = ()
    tune: tuple[_TuneTable, ...] = ()
    blend: tuple[_BlendTable, ...] = ()


def read_matrix(path: Path, data_dir: Path | None = None) -> Matrix:
    """Read all runs of a matrix, and check every name and option; those with tuning come first."""
    file = _read(path)
    tunings = [entry for entry in _tunings(path, file) if entry.seeds]
    if not file.run and not tunings:
        raise ConfigError(f"{path} has no [[run]]", _HINT)
    taken: dict[str, tuple[Entry, str]] = {
        name: (entry, "a tuning") for entry in tunings for name in entry.names
    }
    runs, blends = list[Entry](), list[Blend]()

    def check(entry: Entry, where: str) -> None:
        former, place = taken.setdefault(entry.asked.name, (entry, where))
        if former is not entry:
            raise ConfigError(
                f"{entry} would overwrite the record of {place}, {former}",
                "remove one of them, or give it another label",
            )

    _check_data(tunings, data_dir)
    for number, run in enumerate(file.run, start=1):
        with _named(f"{path}, run {number}"):
            made = list(run.entries())
            _check_data(made, data_dir)
            for entry in made:
                check(entry, f"run {number}")
        runs += made
    for number, table in enumerate(file.blend, start=1):
        with _named(f"{path}, blend {number}"):
            for both in table.entries(runs):
                check(both, "a blend")
                blends.append(both)
    parts = [part for blend in blends for part in blend.parts]
    left = [entry for entry in runs if entry not in parts]
    return Matrix(Path(file.results), (*tunings, *left, *blends), Path(file.tuning))


def read_tuning(path: Path) -> Matrix:
    """Read all searches of a matrix, without the final runs, and check every name."""
    file = _read(path)
    if not file.tune:
        raise ConfigError(f"{path} has no [[tune]]", "docs/guides/studies.md shows one")
    searches = (replace(entry, seeds=()) for entry in _tunings(path, file))
    return Matrix(Path(file.results), tuple(searches), Path(file.tuning))


def _tunings(path: Path, file: _File) -> list[Tuning]:
    entries: dict[str, Tuning] = {}
    for number, table in enumerate(file.tune, start=1):
        with _named(f"{path}, tune {number}"):
            for entry in table.entries():
                if entries.setdefault(entry.asked.name, entry) is not entry:
                    raise ConfigError(f"{entry} is listed twice", "remove one of the two")
    return list(entries.values())


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Put the place before the message of an error."""
    try:
        yield
    except SoleraError as error:
        raise ConfigError(f"{where}: {error.message}", error.hint) from None
    except ValidationError as error:
        raise ConfigError(f"{where}: {_in_words(error)}", _HINT) from None


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"the matrix {path} cannot be read: {error.strerror}", "give a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", _HINT) from None
    except ValidationError as error:
        raise ConfigError(f"{path}, {_in_words(error)}", _HINT) from None


def _in_words(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    wrong = error.errors()[0]
    where, said = wrong["loc"], str(wrong["msg"]).removeprefix("Value error, ")
    if wrong["type"] == "extra_forbidden":
        said = "no such setting"
    if where and where[0] in ("run", "tune", "blend") and len(where) > 1:
        where = (f"{where[0]} {int(where[1]) + 1}", *where[2:])
    return "".join(f"{part}: " for part in (*where, said)).removesuffix(": ")


def _check_data(entries: Iterable[Entry], data_dir: Path | None) -> None:
    """An own file is read, for its columns; a data set by name has only to be there, or on the net."""
    for name, config in {entry.config.dataset: entry.config for entry in entries}.items():
        if name not in names():
            load(name, columns=config.columns, min_interactions=config.min_interactions)
        elif config.columns:
            raise ConfigError(f"the columns of {name!r} are already known", "remove `columns`")
        elif available(name, data_dir) == "by hand":
            load(name, data_dir=data_dir)  # says what to get, and from where


def side_by_side(
    methods: Sequence[str], baselines: Sequence[str], results: Path, *, rounds: int, **where: Any
) -> Matrix:
    """Methods, each with its defaults or as a preset, and baselines.

    `where` is what all runs share: data set, protocol, seed, and how an own file is read.
    """
    entries = [_compared(name, rounds, where) for name in methods]
    for name in baselines:
        options = configure(name).model_dump(mode="json")
        entries.append(Entry(name, BaselineConfig(baseline=name, options=options, **where)))
    labels = [entry.label for entry in entries]
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise ConfigError(f"{twice[0]} is listed twice", "list it once")
    return Matrix(results, tuple(entries))


def _compared(name: str, rounds: int, where: dict[str, Any]) -> Entry:
    if ":" in name or name.endswith(".toml"):
        chosen = preset(name)
        if chosen.dataset != where["dataset"]:
            raise ConfigError(
                f"preset {name!r} is for {chosen.dataset}, not for {where['dataset']}",
                "choose a preset for the same data set",
            )
        config = chosen.config(protocol=where["protocol"], seed=where["seed"])
        return Entry(chosen.name, config, chosen.name)
    method, *plugins = name.split("+")
    usual = usual_rounds(find(method, {}, plugins))
    made = RunConfig(method=method, plugins=tuple(plugins), rounds=min(rounds, usual), **where)
    return Entry(made.full_method, made.resolved())
