"""The result of a run: the typed form that commands print, files store and tables read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import polars as pl
from pydantic import ConfigDict, Field, field_validator

from solera.core.text import render
from solera.core.types import Frozen
from solera.data.interactions import Split
from solera.evaluate import Evaluation
from solera.evaluate.metrics import BUILT_IN, CUTOFFS

Metrics = dict[str, float]  # "hr@10", "ndcg@10", …
READ = "read with the history"  # how a model that scores by histories uses the validation item
Ranking = Literal["full", "sampled99"]
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
    """The result of a finished run or a fitted baseline. A baseline leaves the fields of rounds empty."""

    method: str
    dataset: str
    protocol: str
    leaky: bool
    seed: int
    users: int = Field(ge=1)
    items: int = Field(ge=1)
    evaluated_users: int
    test: Tested  # of the model as trained, which reads the validation item if it reads histories
    test_train: Tested | None = None  # of a model that knows the training items alone
    test_validation: Tested | None = None  # of one that also knows the validation item
    test_request_time: Tested | None = None  # as `test`, of a model that is told when its user asks
    validation_item: str | None = None  # how it does: READ, what was refreshed, or why not
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

    @classmethod
    def of(
        cls, method: str, split: Split, seed: int, *, test: Evaluation, validation: Rankings, **more: Any
    ) -> RunResult:
        """Build a result from the common fields and `more`, the fields that only some results have."""
        return cls(
            method=method,
            dataset=split.data.name,
            protocol=split.protocol,
            leaky=split.leaky,
            seed=seed,
            users=split.data.n_users,
            items=split.data.n_items,
            evaluated_users=len(test.full_ranking.users),
            test=Tested.of(test),
            validation=validation,
            **more,
        )

    @property
    def title(self) -> str:
        """Method, data set, protocol and seed."""
        return f"{self.method} on {self.dataset}, protocol {self.protocol}, seed {self.seed}"

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """The cutoffs of the metrics, smallest first."""
        return tuple(sorted({int(name.split("@")[1]) for name in self.test.full}))

    @property
    def shown(self) -> tuple[str, ...]:
        """The metrics that a printed table shows: a few by default, else HR and NDCG at all cutoffs.

        Metrics of one's own are always shown.
        """
        own = dict.fromkeys(name.split("@")[0] for name in self.test.full)
        added = [name for name in own if name not in BUILT_IN]
        if self.cutoffs == CUTOFFS:
            return (*METRICS, *(f"{name}@10" for name in added))
        return tuple(f"{name}@{k}" for k in self.cutoffs for name in ("hr", "ndcg", *added))

    @property
    def rows(self) -> list[tuple[str | float, ...]]:
        """The metrics in `shown`, one row for each part and ranking, with its name first."""
        named = list(zip(RANKINGS, ("full ranking", "99 negatives"), strict=True))
        shown: list[tuple[str, Rankings, tuple[Ranking, str]]] = [("test", self.test, each) for each in named]
        shown += [(part, figures, named[0]) for part, figures in self.other_tests.items()]
        shown += [("validation", self.validation, each) for each in named]
        return [
            (f"{part}, {name}", *(figures[key][metric] for metric in self.shown))
            for part, figures, (key, name) in shown
        ]

    @property
    def other_tests(self) -> dict[str, Tested]:
        """The tests under other conditions, by what these are: empty if there were none."""
        of_train = self.validation_item == READ
        other = self.test_train if of_train else self.test_validation
        name = "test without validation item" if of_train else "test with validation item"
        found = {name: other, "test, time of the request known": self.test_request_time}
        return {name: tested for name, tested in found.items() if tested is not None}

    @property
    def table(self) -> pl.DataFrame:
        """All metrics: one row for each part and ranking, one column for each metric."""
        return metrics_table({"test": self.test, **self.other_tests, "validation": self.validation})

    def __repr__(self) -> str:
        """The result in one line."""
        test = self.test.full
        leaky = ", leaky" if self.leaky else ""
        return (
            f"<{self.method} on {self.dataset} ({self.protocol}{leaky}): "
            f"test HR@10 {test['hr@10']:.4f}, NDCG@10 {test['ndcg@10']:.4f}>"
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
        said, test = [], self.test
        if test.cold and test.warm:
            on_others = ", ".join(f"{name} {test.warm[name]:.4f}" for name in ("hr@10", "ndcg@10"))
            said.append(f"{test.cold:.1%} of the test items have no training row; on the others {on_others}")
        if test.beyond:
            said.append(", ".join(f"{name} {value:.4g}" for name, value in test.beyond.items()))
        return said

    def document(self) -> dict[str, Any]:
        """The result as JSON types, without empty fields."""
        return self.model_dump(mode="json", exclude_none=True)


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


METRICS = ("hr@10", "ndcg@10", "mrr@10", "hr@20", "ndcg@20")  # shown of the default cutoffs
LEAKY = "LEAKY: under this protocol the held-out items can be told from the training negatives."
