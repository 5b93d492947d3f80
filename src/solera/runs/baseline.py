"""Run centralized baselines under the same protocols, with the same output as a federated run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from solera.baselines import BASELINES, SLIST, Baseline, OnEpoch, configure
from solera.core.types import Ints
from solera.data.interactions import Interactions, Part, Split, history, when_asked
from solera.data.ragged import Ragged
from solera.evaluate import Evaluation, Evaluator, Score, split
from solera.evaluate.metrics import CUTOFFS, with_always
from solera.runs.histories import tests_of_baseline
from solera.runs.result import Figures, Rankings, RunResult, Tested, TestName


@dataclass(frozen=True, eq=False)
class BaselineRun(Figures):
    """The result of a fitted baseline: all metrics, and the ranks of the test items."""

    result: RunResult
    split: Split
    model: Baseline
    evaluations: Mapping[TestName, Evaluation]

    @property
    def parts(self) -> Split:
        """Training, validation and test items."""
        return self.split

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for users, given the histories of all users, oldest first."""
        return lambda users: self.model.scores(users, known)

    def evaluate(self, name: TestName = "test") -> Evaluation:
        """Every user's ranks in one of the tests that were made."""
        return self.evaluations[name]

    def __repr__(self) -> str:
        """The name and main metrics in one line."""
        return repr(self.result)


def run_baseline(
    name: str,
    data: Interactions,
    *,
    protocol: str = "strict",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    cutoffs: Iterable[int] = CUTOFFS,
    both_tests: bool = True,
    on_epoch: OnEpoch | None = None,
) -> BaselineRun:
    """Fit a baseline on all users' training items and evaluate it.

    `cutoffs` are those of the metrics. `both_tests` is that of a run. `on_epoch` is called after every epoch.
    """
    config = configure(name, options)
    parts = split(data, protocol)
    start = time.perf_counter()
    model = BASELINES[name].fit(parts, config, seed, on_epoch)
    seconds = time.perf_counter() - start
    evaluator = Evaluator(parts, seed, with_always(cutoffs))
    asked = tests_of_baseline(model, parts)
    tests = asked.evaluated(parts, evaluator.test, both=both_tests)
    told = None
    if isinstance(model, SLIST) and model.reads_request_time:
        known = when_asked(parts)
        told = Tested.of(evaluator.test(lambda users: model.scores(users, known)))
    result = RunResult.of(
        name,
        parts,
        seed,
        tests=tests,
        refresh=asked.refresh,
        test_request_time=told,
        validation=Rankings.of(evaluator.validation(_score(model, parts, "validation"))),
        seconds_to_fit=seconds,
        options=config.model_dump(mode="json"),
    )
    return BaselineRun(result, parts, model, tests)


def validate_baseline(
    name: str,
    parts: Split,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Rankings:
    """Metrics on the validation items only, for choosing settings and for comparison."""
    model = BASELINES[name].fit(parts, configure(name, options), seed, on_epoch)
    return Rankings.of(Evaluator(parts, seed).validation(_score(model, parts, "validation")))


def _score(model: Baseline, parts: Split, part: Part) -> Score:
    known = history(parts, part)
    return lambda users: model.scores(users, known)
