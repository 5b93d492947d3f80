"""Centralized baselines under the same protocols, with the same output as a federated run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from solera.baselines import BASELINES, Baseline, OnEpoch, configure
from solera.data.interactions import Interactions
from solera.data.split import Part, Split, history
from solera.evaluate import Evaluation, Evaluator, Score, split
from solera.runs.result import Rankings, RunResult


class BaselineRun(NamedTuple):
    """What a fitted baseline leaves: all figures, and the ranks that those on test items come from."""

    result: RunResult
    split: Split
    test: Evaluation

    @property
    def metrics(self) -> pl.DataFrame:
        """All figures as a table."""
        return self.result.table

    def __repr__(self) -> str:
        """What it is, and how good."""
        return repr(self.result)


def run_baseline(
    name: str,
    data: Interactions,
    *,
    protocol: str = "strict",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    on_epoch: OnEpoch | None = None,
) -> BaselineRun:
    """Fit a baseline on everybody's training items and evaluate it; `on_epoch` hears of its progress."""
    config = configure(name, options)
    parts = split(data, protocol)
    start = time.perf_counter()
    model = BASELINES[name].fit(parts, config, seed, on_epoch)
    seconds = time.perf_counter() - start
    evaluator = Evaluator(parts, seed)
    test = evaluator.test(_score(model, parts, "test"))
    result = RunResult.of(
        name,
        parts,
        seed,
        test=test,
        validation=Rankings.of(evaluator.validation(_score(model, parts, "validation"))),
        seconds_to_fit=seconds,
        options=config.model_dump(mode="json"),
    )
    return BaselineRun(result, parts, test)


def validate_baseline(
    name: str,
    data: Interactions,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Rankings:
    """The figures on the validation items alone, under the strict protocol: for choosing settings."""
    parts = split(data, "strict")
    model = BASELINES[name].fit(parts, configure(name, options), seed, on_epoch)
    return Rankings.of(Evaluator(parts, seed).validation(_score(model, parts, "validation")))


def _score(model: Baseline, parts: Split, part: Part) -> Score:
    known = history(parts, part)
    return lambda users: model.scores(users, known)
