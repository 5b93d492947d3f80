"""Records: what remains of a finished run, one small JSON file each, with every figure a table needs.

    results/<data set>/<label>--<protocol>--s<seed>.json
    results/<data set>/<label>--<protocol>--s<seed>.failed.json    of a run that failed: why

A file is written whole or not at all. It holds no path of the machine and no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from solera.core.errors import RunError
from solera.core.files import write_atomically
from solera.core.types import Floats, Frozen
from solera.data.datasets import names
from solera.evaluate import metrics
from solera.runs.costs import Costs
from solera.runs.result import READ, Bytes, Metrics, RunResult, Tested
from solera.runs.settings import RENAMED, BaselineConfig, RunConfig
from solera.study.provenance import Code

Kind = Literal["method", "baseline"]
History = Literal["train", "validation"]  # what a tested model knows of a user: up to these items
_READERS = ("fedease", "fedslist", "fedhist", "fedsasrec", "ease", "ials", "sasrec")
Content = TypeVar("Content", bound="RunRequest")


class UserGroup(Frozen):
    """The users who have about as many items, from `least` to `most`."""

    least: int
    most: int
    users: int
    full: Metrics
    sampled99: Metrics


class RunRequest(Frozen):
    """Settings of a requested run."""

    format: int = 1
    label: str
    kind: Kind
    preset: str | None = None
    dataset: str
    protocol: str
    seed: int
    config: dict[str, Any] = Field(description="options resolved; of an own data file, the name alone")

    @field_validator("config")
    @classmethod
    def _new_names(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Settings as they are called today."""
        return {RENAMED.get(key, key): value for key, value in config.items()}

    @property
    def name(self) -> str:
        """What identifies the record among others."""
        return f"{self.dataset}/{slug(self.label)}--{self.protocol}--s{self.seed}"

    def difference(self, other: RunRequest) -> str:
        """Description of the differences to another request; empty if there are none.

        Settings that only one of them has are not held against them: options come and go with the program.
        """
        return ", ".join(_difference(self._settings(), other._settings()))

    def _settings(self) -> dict[str, Any]:
        return {"label": self.label, "kind": self.kind, "preset": self.preset, **self.config}


_GROUPS = ("options", "dp", "first", "second")  # settings with settings; the last two are parts of a blend


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for key in (key for key in one if key in other):
        if isinstance(one[key], Mapping) and isinstance(other[key], Mapping) and key in _GROUPS:
            yield from _difference(one[key], other[key])
        elif one[key] != other[key]:
            yield f"{key} {one[key]!r} instead of {other[key]!r}"


class Failure(RunRequest):
    """A requested run that failed, and the reason."""

    error: str


class Record(RunRequest):
    """One finished run."""

    format: Literal[2] = 2
    environment: dict[str, Any]
    code: Code
    result: RunResult
    seconds: float = Field(description="of all rounds with their validation; of a baseline, of its fit")
    bytes_until_selected: Bytes | None = Field(
        None, description="of an average client in all rounds up to the selected one, sitting some out"
    )
    by_activity: tuple[UserGroup, ...] = Field(description="users in quarters by their training items")
    by_ratings: tuple[UserGroup, ...] = Field(
        default=(), description="users by all their rows, held-out ones included, in ranges of papers"
    )
    costs: Costs | None = Field(default=None, description="None of a baseline, and of older records")
    counts: tuple[int, ...] | None = Field(
        default=None, description="test items of every user, None if one each"
    )
    ranks: tuple[float, ...] = Field(description="full-ranking places of all test items, in user order")
    second_ranks: tuple[float, ...] | None = Field(
        default=None, description="the same of the second test, with the other history"
    )

    @model_validator(mode="after")
    def _users(self) -> Self:
        if self.counts is not None and sum(self.counts) != len(self.ranks):
            raise ValueError(f"{len(self.ranks)} ranks for {sum(self.counts)} test items")
        if self.second_ranks is not None and len(self.second_ranks) != len(self.ranks):
            raise ValueError(
                f"{len(self.second_ranks)} ranks in the second test, {len(self.ranks)} in the first"
            )
        if sum(group.users for group in self.by_activity) != self.users:
            raise ValueError("the groups in by_activity do not cover all users")
        return self

    @property
    def users(self) -> int:
        """Number of evaluated users."""
        return len(self.ranks if self.counts is None else self.counts)

    @property
    def reads_histories(self) -> bool:
        """Whether the model scores by histories. Older records do not say."""
        how = self.result.validation_item
        return self.result.method.split("+")[0] in _READERS if how is None else how == READ

    def test(self, history: History) -> Tested | None:
        """Test figures of a model that knows these items of a user; None if it was not tested so."""
        result = self.result
        if result.validation_item is None and (self.reads_histories is (history == "validation")):
            return result.test
        if result.method == "popularity":  # histories change nothing
            return result.test
        return result.test_validation if history == "validation" else result.test_train

    def ndcg(self, history: History) -> Floats | None:
        """Full-ranking NDCG@10 of every user, by a model that knows these items; None if not tested so."""
        if self.test(history) is None:
            return None
        first = self.result.method == "popularity" or self.reads_histories is (history == "validation")
        ranks = self.ranks if first else self.second_ranks
        if ranks is None:
            return None
        counts = np.ones(self.users, np.int64) if self.counts is None else np.array(self.counts, np.int64)
        return metrics.per_user(np.array(ranks), counts)["ndcg@10"]


def asked(label: str, config: RunConfig | BaselineConfig, preset: str | None = None) -> RunRequest:
    """What a config asks for, under a name for tables."""
    dataset = config.dataset if config.dataset in names() else Path(config.dataset).name
    return RunRequest(
        label=label,
        kind="method" if isinstance(config, RunConfig) else "baseline",
        preset=preset,
        dataset=config.dataset if config.dataset in names() else Path(config.dataset).stem,
        protocol=config.protocol,
        seed=config.seed,
        config=config.model_dump(mode="json") | {"dataset": dataset},
    )


WORK = ".bench-work"  # beside records: what is under way
SEARCH = "optuna.log"  # a search under way, in the folder of its entry or of its sweep
_FAILED = ".failed.json"


def slug(label: str) -> str:
    """A label as a file name."""
    return re.sub(r"-{2,}", "-", re.sub(r"[^a-z0-9.+=_]", "-", label.lower())).strip("-.") or "-"


class Store(Generic[Content]):
    """The records in a folder, all of one kind, and the failures of runs that have none."""

    def __init__(self, path: Path, kind: type[Content]) -> None:
        self.path, self._kind = path, kind

    def file(self, name: str) -> Path:
        """The file of a record, which may not exist."""
        return self.path / f"{name}.json"

    def listed(self) -> dict[str, Content]:
        """All records by name; none if there is no such folder."""
        found = {}
        for path in sorted(self.path.rglob("*.json")):
            if not path.name.endswith(_FAILED):
                record = read_as(path, self._kind)
                if self.file(record.name) != path:
                    raise RunError(
                        f"{path} holds the record {record.name}",
                        "rename the file after its record, or remove it",
                    )
                found[record.name] = record
        return found

    def all(self) -> list[Content]:
        """All records."""
        return list(self.listed().values())

    def failures(self) -> dict[str, Failure]:
        """All failures by name of the run."""
        found = (read_as(path, Failure) for path in sorted(self.path.rglob(f"*{_FAILED}")))
        return {each.name: each for each in found}

    def find(self, name: str) -> Content | None:
        """The record of that name, if it is there."""
        path = self.file(name)
        return read_as(path, self._kind) if path.exists() else None

    def request(self, name: str) -> RunRequest | None:
        """What the record of that name was asked for, if it is there."""
        return self.find(name)

    def put(self, record: Content | Failure) -> None:
        """Write a record or a failure."""
        path = self.file(record.name)
        failed = path.with_name(f"{path.stem}{_FAILED}")
        if isinstance(record, Failure):
            path = failed
        else:
            failed.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, record.model_dump_json() + "\n")


def read_as(path: Path, kind: type[Content]) -> Content:
    """The content of a file, of the given kind; anything else is an error."""
    what = kind.__name__.lower()
    hint = "take it away, or make it anew with `solera bench run … --replace`"
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}", hint) from None
    except ValidationError as error:
        wrong = error.errors()[0]
        where = "".join(f"{part}: " for part in wrong["loc"])
        raise RunError(f"{path} is not a {what}: {where}{wrong['msg']}", hint) from None
