"""Blend two models: add up their scores, standardised user by user, with a weight chosen on validation.

    score = (1 − w) · (a − mean a) / std a + w · (b − mean b) / std b       mean and std over a user's items

A model that was solved in one round and one that was trained in many err differently, so the blend is better
than either. w is the best on the validation items, of 0, 0.05, …, 1 and finer steps at both ends. Test items
are ranked with that w alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError
from torch import Tensor

from solera.core.errors import ConfigError, RunError
from solera.core.files import creating_folder
from solera.core.types import Frozen, Ints
from solera.data.interactions import Split, history
from solera.data.ragged import Ragged
from solera.evaluate import Evaluator, get
from solera.runs.result import READ, Rankings, RunResult, Tested
from solera.runs.settings import VALIDATED

_FINE = (0.01, 0.02, 0.03)  # a closed form has few high scores, so little of its weight is often enough
WEIGHTS = tuple(sorted({n / 20 for n in range(21)} | {*_FINE} | {round(1 - w, 2) for w in _FINE}))
BLEND = "blend.json"  # in the folder of a blend, beside the folders of its two runs
FIRST, SECOND = "first", "second"  # these folders


class Serving(Protocol):
    """A model that scores items by users' histories."""

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for users, given the histories of all users, oldest first."""
        ...


class Tried(Protocol):
    """A finished run or a fitted baseline."""

    @property
    def result(self) -> RunResult:
        """Its metrics."""
        ...

    @property
    def parts(self) -> Split:
        """Training, validation and test items."""
        ...

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for users, given the histories of all users, oldest first."""
        ...


class BlendSettings(Frozen):
    """What is saved of a blend: the weight of the second model, and the validation figure of every weight."""

    weight: float
    validation: dict[float, float]


def standardised(scores: Tensor) -> Tensor:
    """Scores with mean 0 and standard deviation 1 over the items of each user; 0 if all are equal."""
    centred = scores - scores.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)


@dataclass(frozen=True)
class Blended:
    """Two models that score together."""

    first: Serving
    second: Serving
    weight: float

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """Blended scores of users with these histories."""
        one, other = self.first.serve(known), self.second.serve(known)
        return lambda users: mixed(one(users), other(users), self.weight)


def mixed(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """The blend of two models' scores."""
    return standardised(first).lerp(standardised(second).to(first), weight)


def blend(first: Tried, second: Tried) -> tuple[BlendSettings, RunResult]:
    """Choose the weight on validation, and rank the test items with it."""
    _check(first, second)
    parts, seed = first.parts, first.result.seed
    evaluator = Evaluator(parts, seed, first.result.cutoffs, validated=VALIDATED)
    known = history(parts, "validation")
    scores = first.serve(known), second.serve(known)

    def with_all_weights(users: Ints) -> Iterator[Tensor]:
        one, other = (score(users) for score in scores)
        for weight in WEIGHTS:
            yield mixed(one, other, weight)

    tried = dict(zip(WEIGHTS, evaluator.validations(with_all_weights), strict=True))
    figures = {weight: each.selected(get(parts.protocol)) for weight, each in tried.items()}
    best = max(figures, key=lambda weight: figures[weight])
    both = Blended(first, second, best)
    test = evaluator.test(both.serve(history(parts, "test")))
    without = None if parts.leaky else Tested.of(evaluator.test(both.serve(parts.train)))
    result = RunResult.of(
        f"{first.result.method} & {second.result.method}",
        parts,
        seed,
        test=test,
        test_train=without,
        test_validation=Tested.of(test) if without else None,
        validation_item=READ,
        validation=Rankings.of(tried[best]),
        options={"weight": best},
    )
    return BlendSettings(weight=best, validation=figures), result


def _check(first: Tried, second: Tried) -> None:
    """Refuse models that were not trained on the same items, or do not score by histories alone."""
    for name in ("dataset", "protocol", "users", "items"):
        one, other = getattr(first.result, name), getattr(second.result, name)
        if one != other:
            raise ConfigError(
                f"the models have different {name}: {one} and {other}", "blend runs of the same data set"
            )
    for each in (first, second):
        if each.result.validation_item not in {READ, None}:
            raise ConfigError(
                f"{each.result.method!r} does not score users by their histories alone",
                "blend methods such as fedslist and fedsasrec, or baselines such as slist and sasrec",
            )


def write_blend(path: Path, runs: tuple[Path, Path], settings: BlendSettings, result: RunResult) -> None:
    """Write the folder of a blend: copies of both runs, the weight, and the result."""
    if path.exists():
        raise RunError(f"{path} already exists", "give another --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    with creating_folder(path) as partial:
        for name, run in zip((FIRST, SECOND), runs, strict=True):
            shutil.copytree(run, partial / name, ignore=shutil.ignore_patterns("checkpoint-*"))
        for name, content in ((BLEND, settings.model_dump()), ("result.json", result.document())):
            (partial / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_blend(path: Path) -> tuple[BlendSettings, RunResult]:
    """The settings and the result in the folder of a blend."""
    try:
        settings = BlendSettings.model_validate_json((path / BLEND).read_text(encoding="utf-8"))
        return settings, RunResult.model_validate_json((path / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        raise RunError(f"the blend in {path} cannot be read: {error}", "blend the runs again") from None
