"""A trial: settings, and what they gave on validation items."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, Field

from solera.bench.records import RunRequest, UserGroup
from solera.core.errors import SoleraError
from solera.core.types import Frozen
from solera.runs import StoppedError
from solera.runs.result import Metrics

# Called with a validation figure and the passes so far; raises an error where the trial has to end.
Heard = Callable[[float, float], None]
# Whether a trial with these figures, after so many passes, is no use.
Hopeless = Callable[[list[float], float], bool]
# Errors of a trial's settings, which end the trial and not the search.
_OF_SETTINGS = (SoleraError, ArithmeticError, MemoryError, RuntimeError)


class PrunedError(Exception):
    """A trial that is worse than most were at the same round."""


class Found(BaseModel):
    """What a trial that was not cut short gave."""

    ndcg: float
    hr: float
    ndcg99: float | None = None
    hr99: float | None = None
    rounds: int | None = None
    passes: float | None = None
    test: Metrics | None = None
    test99: Metrics | None = None
    groups: tuple[UserGroup, ...] = ()


class Trial(Frozen):
    """Settings, and what they gave on the validation items in full ranking."""

    options: dict[str, Any] = Field(description="those that were searched; of the first trial, the defaults")
    end: Literal["finished", "pruned", "failed"]
    ndcg: float | None = Field(default=None, description="NDCG@10 of the best round, None of a failed trial")
    hr: float | None = None
    ndcg99: float | None = Field(
        default=None, description="the same round against 99 sampled negatives, as papers report it"
    )
    hr99: float | None = None
    rounds: int | None = None
    passes: float | None = Field(
        default=None, description="what it cost: rounds times clients, over the number of clients"
    )
    seconds: float
    error: str | None = None
    curve: tuple[float, ...] = Field(default=(), description="NDCG@10 of every validation")
    test: Metrics | None = Field(
        default=None, description="on test items, where a sweep was asked for them; they decide nothing"
    )
    test99: Metrics | None = Field(default=None, description="the same against 99 sampled negatives")
    groups: tuple[UserGroup, ...] = Field(
        default=(),
        description="the same of users in five groups by their training items, the fewest first",
    )


class TrialRequest(RunRequest):
    """Request of a trial."""

    @property
    def name(self) -> str:
        """File name of the trial, by its number."""
        return f"{self.config['trial']:04d}.json"


class TrialRecord(TrialRequest):
    """Record of a trial."""

    trial: Trial


Evaluate = Callable[[dict[str, Any], Heard], Found]


def attempt(options: dict[str, Any], evaluate: Evaluate, hopeless: Hopeless = lambda *_: False) -> Trial:
    """One trial: it ends early where its figures are `hopeless`, and an error of its settings is its end."""
    begin, curve, passes = time.perf_counter(), list[float](), 0.0

    def heard(figure: float, so_far: float) -> None:
        nonlocal passes
        passes = so_far
        curve.append(figure)
        if hopeless(curve, passes):
            raise PrunedError

    ended: dict[str, Any]
    try:
        ended = {"end": "finished", **evaluate(options, heard).model_dump()}
    except PrunedError:
        ended = {"end": "pruned", "ndcg": max(curve), "rounds": len(curve), "passes": passes}
    except StoppedError:
        raise
    except _OF_SETTINGS as error:
        text = error.message if isinstance(error, SoleraError) else f"{type(error).__name__}: {error}"
        ended = {"end": "failed", "error": text, "passes": passes}
    return Trial(options=options, curve=tuple(curve), seconds=time.perf_counter() - begin, **ended)


def best(trials: tuple[Trial, ...]) -> Trial | None:
    """The finished trial with the best validation figure; the earlier of equals."""
    finished = [trial for trial in trials if trial.end == "finished"]
    return max(finished, key=lambda trial: trial.ndcg or 0.0, default=None)
