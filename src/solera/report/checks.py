"""What a folder must hold for a page to be made of it; whatever else it holds is not looked at here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from solera.core.errors import RunError


class _Ways(BaseModel):
    up: float = Field(ge=0)
    down: float = Field(ge=0)


class _Seconds(BaseModel):
    train: float
    evaluate: float


class _Metrics(BaseModel):
    hr: float = Field(alias="hr@10", allow_inf_nan=False)
    ndcg: float = Field(alias="ndcg@10", allow_inf_nan=False)


class _Rankings(BaseModel):
    full: _Metrics
    sampled99: _Metrics


class _Round(BaseModel):
    round: int
    clients: int
    validation: _Rankings
    bytes: _Ways
    seconds: _Seconds


class _Result(BaseModel):
    users: int = Field(ge=1)
    items: int
    test: _Rankings
    rounds: int
    selected_round: int = Field(ge=1)
    seconds_per_round: float
    bytes: _Ways


class _Run(BaseModel):
    result: _Result | None
    history: list[_Round]


def check(path: Path, result: Mapping[str, Any] | None, history: Sequence[Mapping[str, Any]]) -> None:
    """Complain of a result or a history that the page could not show."""
    try:
        run = _Run.model_validate({"result": result, "history": history})
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise RunError(f"{path}: {where}: {wrong['msg']}", "train again into a new folder") from None
    if run.result and run.result.selected_round > len(run.history):
        raise RunError(f"{path}: the history ends before the selected round", "train again into a new folder")
