"""Equal tuning: as many trials for one method as for another, by Optuna, judged on validation alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState, create_trial

from solera.bench.spaces import Range, Space
from solera.bench.trials import Evaluate, Trial, attempt
from solera.core.errors import ConfigError

# The pruner ends a trial whose best figure so far is below the median of the others' at the same round.
_PRUNER = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=4)
_ENDS = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}

_Distributions = dict[str, BaseDistribution]


def search(
    space: Space,
    trials: int,
    evaluate: Evaluate,
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
    made = list(done)
    while len(made) < (trials if space else 1):
        made.append(next_trial(space, dict(enumerate(made)), len(made), evaluate, first=first))
        on_trial(made)
    if not any(trial.end == "finished" for trial in made):
        raise ConfigError(
            f"all {len(made)} trials failed; the last error: {made[-1].error}",
            "correct the search space in spaces.toml",
        )
    return made


def _distribution(where: Range) -> BaseDistribution:
    if where.choices is not None:
        return CategoricalDistribution(where.choices)
    assert where.low is not None and where.high is not None
    if where.whole:
        return IntDistribution(int(where.low), int(where.high), log=where.log)
    return FloatDistribution(where.low, where.high, log=where.log)


def next_trial(
    space: Space,
    made: Mapping[int, Trial],
    number: int,
    evaluate: Evaluate,
    *,
    first: Mapping[str, Any] | None = None,
) -> Trial:
    """The trial of that number, after those made so far; number 0 is of the defaults, or of the `first`."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {option: _distribution(where) for option, where in space.items()}
    sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=4)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=_PRUNER)
    for trial in (made[each] for each in sorted(made) if each):
        study.add_trial(_as_optuna(trial, distributions))
    if 0 in made:  # of defaults, which need not lie in the space
        study.add_trial(_as_optuna(made[0].model_copy(update={"options": {}}), {}))
    asked = study.ask(distributions) if number else study.ask()

    def hopeless(curve: list[float]) -> bool:
        asked.report(max(curve), len(curve))
        return asked.should_prune()

    return attempt(dict(asked.params) if number else dict(first or {}), evaluate, hopeless)


def importances(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """How much each option matters, by PED-ANOVA, the shares adding up to 1."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {option: _distribution(where) for option, where in space.items()}
    study = optuna.create_study(direction="maximize")
    study.add_trials([_as_optuna(trial, distributions) for trial in trials])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())


def _as_optuna(trial: Trial, space: _Distributions) -> optuna.trial.FrozenTrial:
    best = [max(trial.curve[: n + 1]) for n in range(len(trial.curve))]
    return create_trial(
        state=_ENDS[trial.end],
        value=trial.ndcg if trial.end == "finished" else None,
        params=trial.options,
        distributions=space,
        intermediate_values=dict(enumerate(best, start=1)),
    )
