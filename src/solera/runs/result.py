"""The result of a run: the typed form that commands print, files store and tables read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self

import polars as pl
from pydantic import ConfigDict, Field, field_validator, model_validator

from solera.baselines import BASELINES
from solera.core.errors import RunError
from solera.core.frozen import Frozen
from solera.core.text import render
from solera.data.interactions import Split
from solera.evaluate import Evaluation
from solera.evaluate.metrics import BUILT_IN, CUTOFFS
from solera.methods import find

Metrics = dict[str, float]  # "hr@10", "ndcg@10", …
Ranking = Literal["full", "sampled99"]
TestName = Literal["test_train", "test"]  # of models that know training items, and validation items as well
TESTS: tuple[TestName, ...] = ("test_train", "test")
RANKINGS: tuple[Ranking, ...] = ("full", "sampled99")


class Rankings(Frozen):
    """Mean metrics, in full ranking and against 99 sampled negatives."""

    full: Metrics
    sampled99: Metrics

    @field_validator("full", "sampled99")
    @classmethod
    def _has_what_tables_show(cls, metrics: Metrics) -> Metrics:
        for name in ("hr@10", "ndcg@10"):
            if name not in metrics:
                raise ValueError(f"the result has no {name}")
        return metrics

    @classmethod
    def of(cls, evaluation: Evaluation) -> Rankings:
        """The mean metrics of an evaluation."""
        return cls(full=evaluation.full, sampled99=evaluation.sampled99)

    def __getitem__(self, ranking: Ranking) -> Metrics:
        """Metrics of one ranking: `run.test["full"]["ndcg@10"]`."""
        found: Metrics = getattr(self, ranking)
        return found


class Tested(Rankings):
    """The same of test items, with what is asked of a test alone. Older results do not have it."""

    warm: Metrics | None = None  # full ranking, on items with a training row
    cold: float | None = None  # share of the test items without one
    beyond: Metrics | None = None  # "coverage@10" and others; see `solera.evaluate.beyond`

    @classmethod
    def of(cls, evaluation: Evaluation) -> Tested:
        """The mean metrics of a test."""
        return cls(
            full=evaluation.full,
            sampled99=evaluation.sampled99,
            warm=evaluation.warm,
            cold=evaluation.cold,
            beyond=evaluation.lists.metrics if evaluation.lists else None,
        )


class Bytes(Frozen):
    """Bytes that one client sends and receives in a round, on average."""

    up: float = Field(ge=0)
    down: float = Field(ge=0)


class RoundSeconds(Frozen):
    """Seconds of one round. Those of the server are a part of training."""

    train: float
    evaluate: float
    server: float | None = None


class RoundEntry(Frozen):
    """One finished round: a line of history.jsonl. A round that was not validated has no metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    round: int
    clients: int
    loss: float
    selection: float | None = None
    validation: Rankings | None = None
    bytes: Bytes
    seconds: RoundSeconds
    validated: int | None = None  # users in a sample that was validated instead of everybody
    interval: tuple[float, float] | None = None  # of `selection`, 95 %, over these users


class RunResult(Frozen):
    """The result of a finished run or a fitted baseline. A baseline leaves the fields of rounds empty.

    `test` is of a model that knows the training items and the validation item of a user, `test_train` of one
    that knows the training items alone. One of them is None where the run made only the other.
    """

    format: Literal[2]  # a result without it is of 0.2: `_of_0_2` says what its `test` was
    method: str
    dataset: str
    protocol: str
    leaky: bool
    seed: int
    users: int = Field(ge=1)
    items: int = Field(ge=1)
    evaluated_users: int
    test: Tested | None = None
    test_train: Tested | None = None
    test_request_time: Tested | None = None  # as `test`, of a model that is told when its user asks
    refresh: str | None = None  # what was refreshed with the validation item for `test`, or why not
    validation: Rankings
    options: dict[str, Any]
    rounds: int | None = None
    selected_round: int | None = Field(None, ge=1)
    seconds_per_round: float | None = None  # median, training only
    seconds_to_test: float | None = None  # to rank the test items of all users
    seconds_to_fit: float | None = None  # of a baseline
    peak_bytes: int | None = None
    bytes: Bytes | None = None
    engine: str | None = None  # of version 0.2, which had a choice
    precision: str | None = None
    secure_aggregation: bool | None = None
    upload: str | None = None  # how uploads and downloads are coded, as on the command line
    download: str | None = None
    privacy: dict[str, Any] | None = None  # the run's privacy statement

    @model_validator(mode="before")
    @classmethod
    def _of_0_2(cls, given: Any) -> Any:
        """Read a result of version 0.2, whose `test` was that of the model as trained.

        Where it was tested twice, both tests stand under names of their own. Where it was tested once, a
        method that reads histories knew the validation item, and others did not.
        """
        if not isinstance(given, Mapping) or "format" in given:
            return given
        if not {"method", "test"} <= given.keys():
            return {**given, "format": 2}
        then, how = dict(given), given.get("validation_item")
        test, longer = then.pop("test"), then.pop("test_validation", None)
        then.pop("validation_item", None)
        if then.get("test_train") is None and longer is None:
            name = "test" if reads_histories(given["method"]) else "test_train"
            return then | {name: test, "format": 2}
        return then | {
            "test": longer,
            "refresh": None if how == "read with the history" else how,
            "format": 2,
        }

    @model_validator(mode="after")
    def _has_a_test(self) -> Self:
        if self.test is None and self.test_train is None:
            raise ValueError("the result has neither test nor test_train")
        return self

    @classmethod
    def of(
        cls,
        method: str,
        split: Split,
        seed: int,
        *,
        tests: Mapping[TestName, Evaluation],
        validation: Rankings,
        **more: Any,
    ) -> RunResult:
        """Build a result from the common fields and `more`, the fields that only some results have."""
        first, *_ = tests.values()
        return cls(
            format=2,
            method=method,
            dataset=split.data.name,
            protocol=split.protocol,
            leaky=split.leaky,
            seed=seed,
            users=split.data.n_users,
            items=split.data.n_items,
            evaluated_users=len(first.full_ranking.users),
            test=Tested.of(tests["test"]) if "test" in tests else None,
            test_train=Tested.of(tests["test_train"]) if "test_train" in tests else None,
            validation=validation,
            **more,
        )

    @property
    def tests(self) -> dict[TestName, Tested]:
        """The tests that there are, `test` first."""
        both: tuple[tuple[TestName, Tested | None], ...] = (
            ("test", self.test),
            ("test_train", self.test_train),
        )
        return {name: tested for name, tested in both if tested is not None}

    @property
    def main(self) -> tuple[TestName, Tested]:
        """`test`, or `test_train` where there is no other, with its name."""
        return next(iter(self.tests.items()))

    @property
    def title(self) -> str:
        """Method, data set, protocol and seed."""
        return f"{self.method} on {self.dataset}, protocol {self.protocol}, seed {self.seed}"

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """The cutoffs of the metrics, smallest first."""
        return tuple(sorted({int(name.split("@")[1]) for name in self.validation.full}))

    @property
    def shown(self) -> tuple[str, ...]:
        """The metrics that a printed table shows: a few by default, else HR and NDCG at all cutoffs.

        Metrics of one's own are always shown.
        """
        own = dict.fromkeys(name.split("@")[0] for name in self.validation.full)
        added = [name for name in own if name not in BUILT_IN]
        if self.cutoffs == CUTOFFS:
            return (*METRICS, *(f"{name}@10" for name in added))
        return tuple(f"{name}@{k}" for k in self.cutoffs for name in ("hr", "ndcg", *added))

    @property
    def rows(self) -> list[tuple[str | float, ...]]:
        """The metrics in `shown`, one row for each part and ranking, with its name first."""
        named = list(zip(RANKINGS, ("full ranking", "99 negatives"), strict=True))
        return [
            (f"{part}, {name}", *(figures[key][metric] for metric in self.shown))
            for part, figures in self._parts.items()
            for key, name in (named[:1] if part == _ASKED else named)
        ]

    @property
    def _parts(self) -> dict[str, Rankings]:
        """All figures by the name of the part that was ranked."""
        found: dict[str, Rankings] = dict(self.tests.items())
        if self.test_request_time:
            found[_ASKED] = self.test_request_time
        return found | {"validation": self.validation}

    @property
    def table(self) -> pl.DataFrame:
        """All metrics: one row for each part and ranking, one column for each metric."""
        return metrics_table(self._parts)

    def __repr__(self) -> str:
        """The result in one line."""
        name, test = self.main
        leaky = ", leaky" if self.leaky else ""
        return (
            f"<{self.method} on {self.dataset} ({self.protocol}{leaky}): "
            f"{name} HR@10 {test.full['hr@10']:.4f}, NDCG@10 {test.full['ndcg@10']:.4f}>"
        )

    def _repr_html_(self) -> str:
        """The same table for a notebook, as the command line prints it. A leaky protocol is marked in red."""
        return render(
            "solera.runs",
            "result.html",
            title=self.title,
            warning=LEAKY if self.leaky else "",
            metrics=self.shown,
            rows=self.rows,
        )

    @property
    def remarks(self) -> list[str]:
        """What else there is to say of the test: cold items, and metrics beyond accuracy."""
        said, (_, test) = [], self.main
        if test.cold and test.warm:
            on_others = ", ".join(f"{name} {test.warm[name]:.4f}" for name in ("hr@10", "ndcg@10"))
            said.append(f"{test.cold:.1%} of the test items have no training row; on the others {on_others}")
        if test.beyond:
            said.append(", ".join(f"{name} {value:.4g}" for name, value in test.beyond.items()))
        if self.test is None:
            said.append("no test, as only the training items were known: test_train")
        return said

    def document(self) -> dict[str, Any]:
        """The result as JSON types, without empty fields."""
        return self.model_dump(mode="json", exclude_none=True)


class Figures:
    """What a finished run says of its `result`."""

    result: RunResult

    @property
    def test(self) -> Tested:
        """Metrics on the test items of a model that knows the validation items: `full`, `sampled99`."""
        return self._tested("test")

    @property
    def test_train(self) -> Tested:
        """The same of a model that knows the training items alone."""
        return self._tested("test_train")

    def _tested(self, name: TestName) -> Tested:
        found = self.result.tests.get(name)
        if found is None:
            other, _ = self.result.main
            raise RunError(f"{self.result.title} has no {name}", f"it has {other}")
        return found

    @property
    def validation(self) -> Rankings:
        """Metrics on the validation items in the selected round."""
        return self.result.validation

    @property
    def metrics(self) -> pl.DataFrame:
        """All metrics as a table."""
        return self.result.table


class Progress(NamedTuple):
    """The progress report after every round."""

    rounds_done: int
    rounds: int
    entry: RoundEntry

    @property
    def figures(self) -> str:
        """Loss and validation NDCG@10 as text."""
        loss = f"loss {self.entry.loss:.4f}"
        return loss if self.ndcg is None else f"{loss} · validation NDCG@10 {self.ndcg:.4f}"

    @property
    def ndcg(self) -> float | None:
        """Validation NDCG@10 in full ranking; None of a round that was not validated."""
        validation = self.entry.validation
        return None if validation is None else validation.full["ndcg@10"]


def metrics_table(parts: Mapping[str, Rankings]) -> pl.DataFrame:
    """Metrics as a table: one row for each part and ranking, one column for each metric."""
    return pl.DataFrame(
        [
            {"items": part, "ranking": ranking, **figures[ranking]}
            for part, figures in parts.items()
            for ranking in RANKINGS
        ]
    )


def flat(content: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested entries, with names joined by dots."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def reads_histories(method: str) -> bool:
    """Whether a method or baseline, as a result names it, scores users by their histories alone."""
    if "&" in method:  # only such are blended
        return True
    if method in BASELINES:
        return method not in _REFRESHED
    name, *plugins = method.split("+")
    built = find(name, {}, plugins)
    return built.one_round or built.scorer.learns_from != "items"


_REFRESHED = ("mf", "ncf", "centrap", "lightgcn")  # baselines whose parameters `test` refreshes
_ASKED = "test, time of the request known"
METRICS = ("hr@10", "ndcg@10", "mrr@10", "hr@20", "ndcg@20")  # shown of the default cutoffs
LEAKY = "LEAKY: under this protocol the held-out items can be told from the training negatives."
