"""Equal tuning: the same budget for one method as for another, by Optuna, judged on validation alone."""

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
from optuna.pruners import BasePruner, MedianPruner, SuccessiveHalvingPruner
from optuna.trial import TrialState, create_trial

from solera.bench.best import rounded
from solera.bench.effort import FACTOR, Effort
from solera.bench.spaces import Range, Space
from solera.bench.trials import Evaluate, SpentError, Trial, attempt
from solera.core.errors import ConfigError

# Of a sweep: ends a trial whose best figure so far is below the median of the others' at the same round.
_MEDIAN = MedianPruner(n_startup_trials=3, n_warmup_steps=4)
# Optuna learns nothing from failed trials and would propose the like for ever: it is told the worst figure.
_ENDS = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.COMPLETE}
_LEAST = 1.0  # passes that a trial costs at least, so that trials that fail at once come to an end
_EPOCHS = "epochs"  # of a centralized baseline: known beforehand, and each a pass

_Distributions = dict[str, BaseDistribution]


def search(
    space: Space,
    effort: Effort,
    evaluate: Evaluate,
    *,
    first: Sequence[Mapping[str, Any]] = ({},),
    done: Sequence[Trial] = (),
    on_trial: Callable[[list[Trial]], None] = lambda _: None,
) -> list[Trial]:
    """Make trials until the budget is spent; those `done` before count, and are learned from.

    The `first` trials are of given settings and always run in full. Others end where successive halving sees
    no use in them, or where the budget ends: enough is left for the least number of trials.
    Trial n depends on the trials before it and on n alone, so an interrupted search goes on as it would have.
    A space without any option needs no more than the first trials.
    """
    if space and effort.budget < effort.needed(len(first)):
        raise ConfigError(
            f"a budget of {effort.budget} passes is too small for {effort.trials} trials, "
            f"{len(first)} of them of full length",
            f"give a budget of {effort.needed(len(first))} or more",
        )
    made = list(done)
    least = max(len(first), effort.trials) if space else len(first)
    while len(made) < least or (space and _left(effort, made) > 0):
        made.append(_next(space, effort, made, evaluate, first))
        on_trial(made)
        if len(made) >= effort.trials and not any(trial.end == "finished" for trial in made):
            break
    if not any(trial.end == "finished" for trial in made):
        raise ConfigError(
            f"all {len(made)} trials failed; the last error: {made[-1].error}",
            "correct the search space in spaces.toml",
        )
    return made


def _left(effort: Effort, made: Sequence[Trial]) -> float:
    """Passes that the next trial may cost; zero or less where there is none."""
    spent = sum(trial.passes or 0.0 for trial in made)
    others = effort.trials - len(made) - 1
    left = effort.budget - spent - max(0, others) * effort.rung
    return left if others >= 0 or left >= effort.rung else 0.0


def _next(
    space: Space,
    effort: Effort,
    made: Sequence[Trial],
    evaluate: Evaluate,
    first: Sequence[Mapping[str, Any]],
) -> Trial:
    number, left = len(made), _left(effort, made)
    study = _empty_study(number, SuccessiveHalvingPruner(min_resource=effort.rung, reduction_factor=FACTOR))
    distributions = {option: _distribution(where) for option, where in space.items()}
    for earlier, trial in enumerate(made):
        _replay(study, trial, {} if earlier < len(first) else distributions)
    protected = number < len(first)
    asked = study.ask() if protected else study.ask(_affordable(distributions, left))

    def hopeless(curve: list[float], passes: float) -> bool:
        asked.report(max(curve), len(curve))
        pruned = asked.should_prune()
        if protected:
            return False
        if not pruned and passes >= left:
            raise SpentError
        return pruned

    options = dict(first[number]) if protected else rounded(asked.params)
    trial = attempt(options, evaluate, hopeless)
    return trial.model_copy(update={"passes": max(trial.passes or 0.0, _LEAST)})


def _replay(study: optuna.Study, trial: Trial, distributions: _Distributions) -> None:
    """Tell Optuna of a trial as it happened; one of given settings is known by its figures alone."""
    if distributions:
        study.enqueue_trial(trial.options)
    asked = study.ask(distributions)
    for step in range(1, len(trial.curve) + 1):
        asked.report(max(trial.curve[:step]), step)
        asked.should_prune()
    study.tell(asked, _figure(trial), state=_ENDS[trial.end])


def _figure(trial: Trial) -> float | None:
    """The figure that Optuna is told; of a pruned trial it knows those of its rounds."""
    return None if trial.end == "pruned" else trial.ndcg or 0.0


def _affordable(distributions: _Distributions, left: float) -> _Distributions:
    """Without more epochs than the budget has passes left."""
    epochs = distributions.get(_EPOCHS)
    if not isinstance(epochs, IntDistribution):
        return distributions
    most = max(epochs.low, min(epochs.high, int(left)))
    return distributions | {_EPOCHS: IntDistribution(epochs.low, most, log=epochs.log)}


def _distribution(where: Range) -> BaseDistribution:
    if where.choices is not None:
        return CategoricalDistribution(where.choices)
    assert where.low is not None and where.high is not None
    if where.whole:
        return IntDistribution(int(where.low), int(where.high), log=where.log)
    return FloatDistribution(where.low, where.high, log=where.log)


def _empty_study(number: int, pruner: BasePruner) -> optuna.Study:
    """A study whose next trial is drawn with its number as the seed."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=4)
    return optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)


def next_trial(space: Space, made: Mapping[int, Trial], number: int, evaluate: Evaluate) -> Trial:
    """The trial of a sweep of that number, after those made so far; number 0 is of the defaults."""
    distributions = {option: _distribution(where) for option, where in space.items()}
    study = _empty_study(number, _MEDIAN)
    for trial in (made[each] for each in sorted(made) if each):
        study.add_trial(_as_optuna(trial, distributions))
    if 0 in made:  # of defaults, which need not lie in the space
        study.add_trial(_as_optuna(made[0].model_copy(update={"options": {}}), {}))
    asked = study.ask(distributions) if number else study.ask()

    def hopeless(curve: list[float], _: float) -> bool:
        asked.report(max(curve), len(curve))
        return asked.should_prune()

    return attempt(dict(asked.params) if number else {}, evaluate, hopeless)


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
        value=_figure(trial),
        params=trial.options,
        distributions=space,
        intermediate_values=dict(enumerate(best, start=1)),
    )
