"""Centralized baselines under the same protocols, with the same output as a federated run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from solera.baselines import Ease, EaseConfig, Popularity
from solera.core.errors import ConfigError, closest
from solera.data.interactions import Interactions
from solera.data.split import Part, Split, history
from solera.evaluate import Evaluator, Score, split
from solera.runs.result import figures, make_result

BASELINES = ("popularity", "ease")


def evaluate_baseline(
    name: str,
    data: Interactions,
    *,
    protocol: str = "strict",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Fit a baseline on everybody's training items and evaluate it."""
    parts = split(data, protocol)
    start = time.perf_counter()
    model = _fit(name, parts, options or {})
    seconds = time.perf_counter() - start
    evaluator = Evaluator(parts, seed)
    return make_result(
        name,
        parts,
        seed,
        test=evaluator.test(_score(model, parts, "test")),
        validation=figures(evaluator.validation(_score(model, parts, "validation"))),
        seconds_to_fit=seconds,
        options=dict(options or {}),
    )


def _fit(name: str, parts: Split, options: Mapping[str, Any]) -> Popularity | Ease:
    if name not in BASELINES:
        raise ConfigError(f"unknown baseline {name!r}", closest(name, list(BASELINES)))
    if name == "popularity":
        if options:
            raise ConfigError("baseline 'popularity' has no options", "leave -o out")
        return Popularity.fit(parts)
    try:
        return Ease.fit(parts, EaseConfig.model_validate(dict(options)))
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ConfigError(
            f"baseline 'ease': {wrong['loc'][0]}: {wrong['msg']}", "its option is reg"
        ) from None


def _score(model: Popularity | Ease, parts: Split, part: Part) -> Score:
    known = history(parts, part)
    return lambda users: model.scores(users, known)
