"""Equal tuning: as many trials for one method as for another, by Optuna, judged on validation alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial
from pydantic import BaseModel

from solera.bench.spaces import Range, Space
from solera.bench.studies import Trial
from solera.core.errors import ConfigError, SoleraError
from solera.runs import StoppedError

# The pruner ends a trial whose best figure so far is below the median of the others' at the same round.
_PRUNER = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=4)
_ENDS = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}

_Distributions = dict[str, BaseDistribution]
Heard = Callable[[float], None]  # called with a round's figure; raises `PrunedError` where it is no use


class PrunedError(Exception):
    """A trial that is worse than most were at the same round."""


class Found(BaseModel):
    """What a trial that was not cut short gave."""

    ndcg: float
    hr: float
    rounds: int | None = None


def search(
    space: Space,
    trials: int,
    evaluate: Callable[[dict[str, Any], Heard], Found],
    *,
    first: Mapping[str, Any] | None = None,
    done: Sequence[Trial] = (),
    on_trial: Callable[[list[Trial]], None] = lambda _: None,
) -> list[Trial]:
    """Make trials until there are as many as wanted; those `done` before count, and are learned from.

    The `first` is of the defaults, or of what is given in their place.
    Trial n depends on the trials before it and on n alone, so an interrupted search goes on as it would have.
    A space without any option needs no more than its defaults.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {option: _distribution(where) for option, where in space.items()}
    made = list(done)
    while len(made) < (trials if space else 1):
        made.append(_trial(distributions, made, evaluate, first or {}))
        on_trial(made)
    if not any(trial.end == "finished" for trial in made):
        raise ConfigError(
            f"all {len(made)} trials failed, the last: {made[-1].error}", "mend its space in spaces.toml"
        )
    return made


def _distribution(where: Range) -> BaseDistribution:
    if where.choices is not None:
        return CategoricalDistribution(where.choices)
    assert where.low is not None and where.high is not None
    if where.whole:
        return IntDistribution(int(where.low), int(where.high), log=where.log)
    return FloatDistribution(where.low, where.high, log=where.log)


def _trial(
    space: _Distributions,
    made: Sequence[Trial],
    evaluate: Callable[[dict[str, Any], Heard], Found],
    first: Mapping[str, Any],
) -> Trial:
    sampler = optuna.samplers.TPESampler(seed=len(made), n_startup_trials=4)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=_PRUNER)
    for trial in made[1:]:  # the first is of defaults, which need not lie in the space
        study.add_trial(_as_optuna(trial, space))
    if made:
        study.add_trial(_as_optuna(made[0].model_copy(update={"options": {}}), {}))
    asked = study.ask(space) if made else study.ask()
    options = dict(asked.params) if made else dict(first)
    begin, curve = time.perf_counter(), list[float]()

    def heard(figure: float) -> None:
        curve.append(figure)
        asked.report(max(curve), len(curve))
        if asked.should_prune():
            raise PrunedError

    ended: dict[str, Any]
    try:
        outcome = evaluate(options, heard)
        ended = {"end": "finished", **outcome.model_dump()}
    except PrunedError:
        ended = {"end": "pruned", "ndcg": max(curve), "rounds": len(curve)}
    except StoppedError:
        raise
    except SoleraError as error:
        ended = {"end": "failed", "error": error.message}
    return Trial(options=options, curve=tuple(curve), seconds=time.perf_counter() - begin, **ended)


def _as_optuna(trial: Trial, space: _Distributions) -> optuna.trial.FrozenTrial:
    best = [max(trial.curve[: n + 1]) for n in range(len(trial.curve))]
    return create_trial(
        state=_ENDS[trial.end],
        value=trial.ndcg if trial.end == "finished" else None,
        params=trial.options,
        distributions=space,
        intermediate_values=dict(enumerate(best, start=1)),
    )
