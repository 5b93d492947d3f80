"""Records: what remains of finished runs, in one table, with every figure that a page needs.

A table is a Parquet file with a row for every record and a column for every field; fields that have parts are
JSON text, ranks and counts are lists. It holds no path of the machine and no model.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, get_args, get_origin

import numpy as np
import polars as pl
from filelock import FileLock
from pydantic import Field, ValidationError, field_validator, model_validator

from solera.core.errors import RunError
from solera.core.files import replacing_file, write_atomically
from solera.core.frozen import Frozen
from solera.core.types import Floats
from solera.data.datasets import names
from solera.evaluate import metrics
from solera.runs.environment import Code
from solera.runs.plan import Costs
from solera.runs.result import Bytes, Metrics, RunResult, TestName
from solera.runs.settings import RENAMED, BaselineConfig, RunConfig

Kind = Literal["method", "baseline"]
Content = TypeVar("Content", bound="TableRow")

WORK = ".bench-work"  # beside a table: what is under way
SEARCH = "optuna.log"  # a search under way, in the folder of its entry or of its sweep
_AS_TRAINED = 3  # format of records whose first ranks are of the model as trained
_FAILED = " failed"  # after the name of a run that has no record


class TableRow(Frozen):
    """A record of any kind."""

    former: ClassVar[Mapping[str, Any]] = {}  # columns of older tables, which it reads as well

    @property
    def name(self) -> str:
        """What identifies it in its table."""
        raise NotImplementedError


class UserGroup(Frozen):
    """The users who have about as many items, from `least` to `most`."""

    least: int
    most: int
    users: int
    full: Metrics
    sampled99: Metrics


class RunRequest(TableRow):
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
        """Data set, label, protocol and seed."""
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

    former: ClassVar[Mapping[str, Any]] = {"second_ranks": tuple[float, ...]}
    format: Literal[4] = 4
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
    ranks: tuple[float, ...] | None = Field(
        default=None, description="full-ranking places of all test items in `test`, in user order"
    )
    ranks_train: tuple[float, ...] | None = Field(default=None, description="the same in `test_train`")

    @model_validator(mode="before")
    @classmethod
    def _of_0_2(cls, given: Any) -> Any:
        """Read a record of version 0.2, whose `ranks` are of the model as trained."""
        if not isinstance(given, Mapping) or given.get("format", 4) > _AS_TRAINED:
            return given
        then = {key: value for key, value in given.items() if key not in {"ranks", "second_ranks"}}
        before, result = given["result"], RunResult.model_validate(given["result"])
        reads = before.get("validation_item") == "read with the history" or result.test_train is None
        names = ("ranks", "ranks_train") if reads else ("ranks_train", "ranks")
        found = dict(zip(names, (given["ranks"], given.get("second_ranks")), strict=True))
        if found["ranks"] is None and result.test == result.test_train:  # of what knows no user
            found = dict.fromkeys(names, given["ranks"])
        return then | found | {"result": result, "format": 4}

    @model_validator(mode="after")
    def _users(self) -> Self:
        for name, ranks in self._ranks.items():
            if (ranks is None) is (name in self.result.tests):
                raise ValueError(f"of {name} there are either figures or ranks")
            if ranks is not None and len(ranks) != self._targets:
                raise ValueError(f"{len(ranks)} ranks in {name} for {self._targets} test items")
        if sum(group.users for group in self.by_activity) != self.users:
            raise ValueError("the groups in by_activity do not cover all users")
        return self

    @property
    def users(self) -> int:
        """Number of evaluated users."""
        return self._targets if self.counts is None else len(self.counts)

    @property
    def _ranks(self) -> dict[TestName, tuple[float, ...] | None]:
        return {"test": self.ranks, "test_train": self.ranks_train}

    @property
    def _targets(self) -> int:
        """Number of test items."""
        made = next((ranks for ranks in self._ranks.values() if ranks is not None), ())
        return len(made) if self.counts is None else sum(self.counts)

    def ndcg(self, name: TestName) -> Floats | None:
        """Full-ranking NDCG@10 of every user in one of the tests; None if it was not made."""
        ranks = self._ranks[name]
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


def slug(label: str) -> str:
    """A label as a file name."""
    return re.sub(r"-{2,}", "-", re.sub(r"[^a-z0-9.+=_]", "-", label.lower())).strip("-.") or "-"


class Store(Generic[Content]):
    """A table of records of one kind, and of the failures of runs that have none.

    Jobs that run side by side `put` their records into an inbox beside the table, one small file each. The
    process that started them `collect`s these into the table, which is replaced as a whole. Readers see both,
    so an interruption at any moment loses nothing.
    """

    def __init__(self, path: Path, kind: type[Content]) -> None:
        self.path = path if path.suffix == ".parquet" else path.with_name(f"{path.name}.parquet")
        self._kind = kind
        self._inbox = self.path.parent / WORK / self.path.name
        self._asked: tuple[object, dict[str, RunRequest]] = (), {}

    def listed(self) -> dict[str, Content]:
        """All records by name; none if there is no such table."""
        found = {record.name: record for record in self._read(self._kind, ~_IS_FAILURE)}
        found |= {each.name: each for each in self._waiting() if not isinstance(each, Failure)}
        return dict(sorted(found.items()))

    def all(self) -> list[Content]:
        """All records, by name."""
        return list(self.listed().values())

    def find(self, name: str) -> Content | None:
        """The record of that name, if it is there."""
        waiting = [each for each in self._waiting() if each.name == name and not isinstance(each, Failure)]
        return waiting[-1] if waiting else next(iter(self._read(self._kind, pl.col("name") == name)), None)

    def failures(self) -> dict[str, Failure]:
        """All failures by name of the run."""
        found = {each.name: each for each in self._read(Failure, _IS_FAILURE)}
        for each in self._waiting():
            found.pop(each.name, None)
            if isinstance(each, Failure):
                found[each.name] = each
        return found

    def requests(self) -> dict[str, RunRequest]:
        """What all records were asked for, by name; runs without their figures."""
        files = [self.path, *self._inbox.glob("*.json")]
        seen = [(file, file.stat().st_mtime_ns) for file in files if file.exists()]
        if self._asked[0] != seen:
            brief = RunRequest if issubclass(self._kind, Record) else self._kind
            found = {each.name: each for each in self._read(brief, ~_IS_FAILURE)}
            found |= {each.name: each for each in self._waiting() if not isinstance(each, Failure)}
            self._asked = seen, found
        return self._asked[1]

    def put(self, record: Content | Failure) -> None:
        """Leave a record or a failure in the inbox."""
        self._inbox.mkdir(parents=True, exist_ok=True)
        failed = _FAILED if isinstance(record, Failure) else ""
        file = f"{time.time_ns():020d} {record.name.replace('/', '--')}{failed}.json"  # in the order of time
        write_atomically(self._inbox / file, record.model_dump_json())

    def collect(self) -> None:
        """Move what is in the inbox into the table."""
        if not any(self._inbox.glob("*.json")):
            return
        with alone(self._inbox.with_name(f"{self.path.name}.lock")):
            files = sorted(self._inbox.glob("*.json"))
            rows: dict[str, dict[str, Any]] = {}
            for each in map(self._opened, files):
                failed = f"{each.name}{_FAILED}"
                rows.pop(failed, None)
                rows[failed if isinstance(each, Failure) else each.name] = _cells(each)
            self._write([{"name": name, **cells} for name, cells in rows.items()])
            for file in files:
                file.unlink()
        with suppress(OSError):
            self._inbox.rmdir()
            self._inbox.parent.rmdir()

    def add(self, *records: Content | Failure) -> None:
        """Write records into the table."""
        for record in records:
            self.put(record)
        self.collect()

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows, which replace those of the same name, and a run's failure if it now has a record."""
        made_of = {"name": str, **_columns(self._kind)}
        if issubclass(self._kind, RunRequest):
            made_of["error"] = str
        table = pl.DataFrame(
            rows, schema={name: _POLARS.get(kind, pl.String) for name, kind in made_of.items()}
        )
        if self.path.exists():
            replaced = table["name"].to_list() + [f"{name}{_FAILED}" for name in table["name"]]
            kept = self._renewed(pl.read_parquet(self.path)).filter(~pl.col("name").is_in(replaced))
            table = pl.concat([kept, table], how="diagonal_relaxed")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_file(self.path) as partial:
            table.sort("name").write_parquet(partial)

    def _renewed(self, table: pl.DataFrame) -> pl.DataFrame:
        """The table with records as they are written today."""
        if not set(self._kind.former) & set(table.columns):
            return table
        rows = [{"name": each.name, **_cells(each)} for each in self._read(self._kind, ~_IS_FAILURE)]
        failures = table.filter(_IS_FAILURE).drop(self._kind.former)
        schema = {name: _POLARS.get(kind, pl.String) for name, kind in _columns(self._kind).items()}
        records = pl.DataFrame(rows, schema={"name": pl.String, **schema})
        return pl.concat([records, failures], how="diagonal_relaxed")

    def _waiting(self) -> list[Content | Failure]:
        """What is in the inbox, in the order in which it was put there."""
        found = []
        for file in sorted(self._inbox.glob("*.json")):
            with suppress(FileNotFoundError):  # it has just been collected
                found.append(self._opened(file))
        return found

    def _opened(self, file: Path) -> Content | Failure:
        kind: type[Content | Failure] = Failure if file.stem.endswith(_FAILED) else self._kind
        return kind.model_validate_json(file.read_bytes())

    def _read(self, kind: type[Any], where: pl.Expr) -> list[Any]:
        """The rows of the table, as far as they belong to that kind."""
        old = self.path.with_suffix("")
        if next(old.rglob("*.json"), None):
            hint = f"solera bench import {old}, then remove that folder"
            raise RunError(f"{old} holds records of version 0.2", hint)
        if not self.path.exists():
            return []
        made_of = _columns(kind) | kind.former
        try:
            table = pl.scan_parquet(self.path)
            there = [name for name in table.collect_schema().names() if name in made_of]
            rows = table.filter(where).select(there).collect().to_dicts()
            parsed = [
                {
                    name: json.loads(value) if made_of[name] is None else value
                    for name, value in row.items()
                    if value is not None
                }
                for row in rows
            ]
            return [kind.model_validate(row) for row in parsed]
        except (OSError, pl.exceptions.PolarsError) as error:
            raise RunError(f"{self.path} is not a table of records: {error}", "give another one") from None
        except ValidationError as error:
            wrong = error.errors()[0]
            place = "".join(f"{part}: " for part in wrong["loc"])
            raise RunError(
                f"{self.path} holds what is no {kind.__name__}: {place}{wrong['msg']}",
                "make the table again, or give another one",
            ) from None


_IS_FAILURE = pl.col("name").str.ends_with(_FAILED)
_POLARS: dict[Any, Any] = {
    str: pl.String,
    int: pl.Int64,
    float: pl.Float64,
    bool: pl.Boolean,
    tuple[int, ...]: pl.List(pl.Int64),
    tuple[float, ...]: pl.List(pl.Float64),
}


def _columns(kind: type[TableRow]) -> dict[str, Any]:
    """The type of every field that a column has as it is; None of one that is JSON."""
    found = {}
    for name, field in kind.model_fields.items():
        options = [each for each in get_args(field.annotation) if each is not NoneType]
        only = options[0] if len(options) == 1 else field.annotation
        if get_origin(field.annotation) is Literal:
            only = type(options[0])
        found[name] = only if only in _POLARS else None
    return found


def _cells(record: TableRow) -> dict[str, Any]:
    made_of = _columns(type(record))
    return {
        name: json.dumps(value, ensure_ascii=False) if made_of[name] is None and value is not None else value
        for name, value in record.model_dump(mode="json").items()
    }


@contextmanager
def alone(lock: Path, cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Wait until no other process holds the lock; `filelock.Timeout` if that is cancelled."""
    for tries_left in reversed(range(10)):
        try:
            held = FileLock(lock).acquire(poll_interval=0.1, cancel_check=cancelled)
            break
        except (FileExistsError, FileNotFoundError):  # another one may just have removed the folder
            if not tries_left:
                raise
    with held:
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
