"""Trials and studies: which settings were tried, what each gave on validation, and so which are the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from solera.core.errors import RunError, SoleraError
from solera.core.frozen import Frozen
from solera.runs import StoppedError
from solera.runs.environment import Code
from solera.runs.result import Metrics, TestName, reads_histories
from solera.study.records import RunRequest, UserGroup
from solera.study.search_space import from_json


class Found(Frozen):
    """What settings gave on the validation items, in full ranking, in the round that counts."""

    ndcg: float | None = Field(default=None, description="NDCG@10; None of a failed trial")
    hr: float | None = None
    ndcg99: float | None = Field(
        default=None, description="the same round against 99 sampled negatives, as papers report it"
    )
    hr99: float | None = None
    rounds: int | None = None
    passes: float | None = Field(
        default=None, description="what it cost: rounds times clients, over the number of clients"
    )
    tested: TestName | None = Field(
        default=None, description="the test that was made, where a sweep was asked for it; it decides nothing"
    )
    test: Metrics | None = Field(default=None, description="its figures")
    test99: Metrics | None = Field(default=None, description="the same against 99 sampled negatives")
    groups: tuple[UserGroup, ...] = Field(
        default=(),
        description="the same of users in five groups by their training items, the fewest first",
    )


class Trial(Found):
    """Settings, how their trial ended, and what it gave."""

    options: dict[str, Any] = Field(description="those that were searched; of the first trial, the defaults")
    end: Literal["finished", "pruned", "failed"]
    seconds: float
    error: str | None = None
    curve: tuple[float, ...] = Field(default=(), description="NDCG@10 of every validation")


# Called with a validation figure and the passes so far; raises an error where the trial has to end.
Heard = Callable[[float, float], None]
Evaluate = Callable[[dict[str, Any], Heard], Found]
# Errors of a trial's settings, which end the trial and not the search.
_OF_SETTINGS = (SoleraError, ArithmeticError, MemoryError, RuntimeError)


class _PrunedError(Exception):
    """A trial that is worse than most were at the same round."""


def attempt(
    options: dict[str, Any], evaluate: Evaluate, hopeless: Callable[[Sequence[float]], bool] = lambda _: False
) -> Trial:
    """One trial: it ends early where its figures are `hopeless`, and an error of its settings is its end."""
    begin, curve, passes = time.perf_counter(), list[float](), 0.0

    def heard(figure: float, so_far: float) -> None:
        nonlocal passes
        passes = so_far
        curve.append(figure)
        if hopeless(curve):
            raise _PrunedError

    ended: dict[str, Any]
    try:
        ended = {"end": "finished", **evaluate(options, heard).model_dump()}
    except _PrunedError:
        ended = {"end": "pruned", "ndcg": max(curve), "rounds": len(curve), "passes": passes}
    except StoppedError:
        raise
    except _OF_SETTINGS as error:
        text = error.message if isinstance(error, SoleraError) else f"{type(error).__name__}: {error}"
        ended = {"end": "failed", "error": text, "passes": passes}
    return Trial(options=options, curve=tuple(curve), seconds=time.perf_counter() - begin, **ended)


def best(trials: Iterable[Trial]) -> Trial | None:
    """The finished trial with the best validation figure; the earlier of equals."""
    finished = (trial for trial in trials if trial.end == "finished")
    return max(finished, key=lambda trial: trial.ndcg or 0.0, default=None)


class Rejected(Frozen):
    """A trial whose settings were the best, and then diverged in a run of full length."""

    trial: int = Field(description="its number, from 0")
    seed: int
    why: str


class Study(RunRequest):
    """All trials of one method on one data set."""

    space: dict[str, Any]
    environment: dict[str, Any]
    code: Code
    trials: tuple[Trial, ...]
    rejected: tuple[Rejected, ...] = ()
    users: int | None = Field(default=None, description="of the data set, on which final runs are made")

    @model_validator(mode="before")
    @classmethod
    def _of_0_2(cls, given: Any) -> Any:
        """Trials of version 0.2 were tested as they were trained."""
        if not isinstance(given, Mapping):
            return given
        trials = [dict(each) if isinstance(each, Mapping) else each for each in given.get("trials", ())]
        for trial in trials:
            if isinstance(trial, dict) and trial.get("test") and not trial.get("tested"):
                reads = reads_histories(given["config"]["method"])
                trial["tested"] = "test" if reads else "test_train"
        return {**given, "trials": trials}

    @property
    def left(self) -> list[Trial]:
        """The trials that were not rejected."""
        rejected = {each.trial for each in self.rejected}
        return [trial for number, trial in enumerate(self.trials) if number not in rejected]

    @property
    def best(self) -> Trial:
        """The best trial that was not rejected."""
        found = best(self.left)
        if found is None:
            raise RunError(
                "no trial finished, or all were rejected",
                "read the errors of the trials and correct the search space",
            )
        return found

    @property
    def passes(self) -> float:
        """What all trials cost together."""
        return sum(trial.passes or 0.0 for trial in self.trials)

    def without_best(self, seed: int, why: str) -> Study:
        """The study with its best trial rejected."""
        worst = self.best
        number = next(number for number, trial in enumerate(self.trials) if trial is worst)
        rejected = Rejected(trial=number, seed=seed, why=why)
        return self.model_copy(update={"rejected": (*self.rejected, rejected)})


class TrialRequest(RunRequest):
    """Request of a trial of a sweep."""

    @property
    def name(self) -> str:
        """Its number."""
        return f"{self.config['trial']:04d}"


class TrialRecord(TrialRequest):
    """Record of a trial of a sweep."""

    trial: Trial


COLUMNS = ("method", "trials", "failed", "passes", "seconds", "given", "chosen")


class Spent(NamedTuple):
    """What a study cost, and what it gained over the settings it began with."""

    dataset: str
    protocol: str
    label: str
    trials: int
    pruned: int
    failed: int
    rejected: int
    passes: float
    seconds: float
    given: float | None  # NDCG@10 on validation of the first trials, whose settings are given
    ndcg: float | None  # the same of the chosen trial
    near_end: dict[str, float]  # its options that lie near an end of their range, which may be too narrow

    def cells(self) -> tuple[str | float | None, ...]:
        """The row of a table of its data set."""
        counts = self.label, self.trials, self.failed, round(self.passes), round(self.seconds)
        return (*counts, self.given, self.ndcg)


def spent(study: Study) -> Spent:
    """Count a study."""
    ends = [trial.end for trial in study.trials]
    chosen = best(study.left)
    first = [trial.options for trial in study.trials[: len(study.config.get("first", [{}]))]]
    given = best(trial for trial in study.left if trial.options in first)
    options = chosen.options if chosen else {}
    return Spent(
        dataset=study.dataset,
        protocol=study.protocol,
        label=study.label,
        trials=len(ends),
        pruned=ends.count("pruned"),
        failed=ends.count("failed"),
        rejected=len(study.rejected),
        passes=study.passes,
        seconds=sum(trial.seconds for trial in study.trials),
        given=given.ndcg if given else None,
        ndcg=chosen.ndcg if chosen else None,
        near_end={
            option: options[option]
            for option, where in from_json(study.space).items()
            if where.near_end(options.get(option))
        },
    )


def narrow(rows: Iterable[Spent]) -> str:
    """A sentence on options that were chosen near an end of their range; empty if there are none."""
    found = [f"{row.label} {option} {value:.4g}" for row in rows for option, value in row.near_end.items()]
    return f"Near an end of the range that was searched: {', '.join(found)}." if found else ""
