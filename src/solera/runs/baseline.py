"""Centralized baselines under the same protocols, with the same output as a federated run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from solera.baselines import BASELINES, Baseline, OnEpoch, configure
from solera.data.interactions import Interactions
from solera.data.split import Part, Split, history
from solera.evaluate import Evaluator, Score, split
from solera.runs.result import figures, make_result


def evaluate_baseline(
    name: str,
    data: Interactions,
    *,
    protocol: str = "strict",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    on_epoch: OnEpoch | None = None,
) -> dict[str, Any]:
    """Fit a baseline on everybody's training items and evaluate it; `on_epoch` hears of its progress."""
    config = configure(name, options)
    parts = split(data, protocol)
    start = time.perf_counter()
    model = BASELINES[name].fit(parts, config, seed, on_epoch)
    seconds = time.perf_counter() - start
    evaluator = Evaluator(parts, seed)
    return make_result(
        name,
        parts,
        seed,
        test=evaluator.test(_score(model, parts, "test")),
        validation=figures(evaluator.validation(_score(model, parts, "validation"))),
        seconds_to_fit=seconds,
        options=config.model_dump(mode="json"),
    )


def _score(model: Baseline, parts: Split, part: Part) -> Score:
    known = history(parts, part)
    return lambda users: model.scores(users, known)
