"""The [[tune]] tables of a matrix: settings by equal tuning, then final runs with the best of them.

[[tune]]
datasets = ["ml-100k"]
methods = ["fedmf", "fedrap"]                 # and, in the same table or another, baselines
protocols = ["strict"]                        # default: strict
seeds = [0, 1, 2]                             # of the final runs; default: none, settings alone
trials = 10                                   # that did not diverge: the same for all
passes = 100                                  # of a trial or a final run at most,
patience = 30                                 # and its patience, in passes
users = 2000                                  # tune on a sample of so many; default: on all
evaluate_users = 2000                         # validated in a round, as on the command line
space.fedmf.embedding_size = { choices = [8] }  # where this data set asks for other ranges
first.fedslist = { decays = "0.8" }           # tried in place of the defaults, where they do not fit
labels.fedmf = "FedMF"                        # name in tables
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from solera.baselines import configure
from solera.bench.effort import Effort
from solera.bench.entries import Tuning
from solera.bench.spaces import Range, space_of
from solera.core.errors import ConfigError
from solera.evaluate import get
from solera.methods import find
from solera.runs.presets import Preset, presets
from solera.runs.settings import BaselineConfig, RunConfig

Names = Annotated[tuple[str, ...], Field(min_length=1)]
_PAPER = "paper"
_USUAL = "ml-100k"  # whose published settings stand in where a paper has none for a data set
_MOST = 2  # published settings that are tried


class TuneTable(Effort):
    """A [[tune]] table of the file."""

    datasets: Names
    methods: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    protocols: Names = ("strict",)
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = ()
    evaluate_users: int | None = Field(default=None, ge=1)
    space: dict[str, dict[str, Range]] = Field(default_factory=dict)
    first: dict[str, dict[str, Any]] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)

    @property
    def effort(self) -> Effort:
        """What all its methods are given."""
        return Effort(**self.model_dump(include=set(Effort.model_fields)))


def tunings(table: TuneTable, folder: Path, results: Path) -> Iterator[Tuning]:
    """All searches of a table: data set after data set, protocol after protocol, method after method."""
    for dataset, protocol in product(table.datasets, table.protocols):
        get(protocol)
        for name in (*table.baselines, *table.methods):
            config = _config(name, dataset, protocol, table)
            given = [*_published(name, dataset), table.first.get(name, {})]
            yield Tuning(
                table.labels.get(name, name),
                config,
                space=space_of(name) | table.space.get(name, {}),
                effort=table.effort,
                first=_distinct(name, given),
                folder=folder,
                results=results,
                seeds=table.seeds,
            )


def _config(name: str, dataset: str, protocol: str, table: TuneTable) -> RunConfig | BaselineConfig:
    if name in table.baselines:
        configure(name)
        return BaselineConfig.model_validate({"baseline": name, "dataset": dataset, "protocol": protocol})
    method, *plugins = name.split("+")
    find(method, {}, plugins)
    settings = {"dataset": dataset, "protocol": protocol, "evaluate_users": table.evaluate_users}
    return RunConfig.model_validate({"method": method, "plugins": plugins} | settings)


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
    for options in (*papers[:_MOST], last):
        found.setdefault(_resolved(name, options), options)
    return tuple(found.values())


def _resolved(name: str, options: dict[str, Any]) -> str:
    try:
        return str(configure(name, options))
    except ConfigError:
        method, *plugins = name.split("+")
        return find(method, options, plugins).config.model_dump_json()
