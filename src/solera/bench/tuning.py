"""Equal tuning: as many trials for one method as for another, by Optuna, judged on validation alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.trial import TrialState, create_trial

from solera.bench.best import rounded
from solera.bench.effort import Effort
from solera.bench.spaces import Range, Space
from solera.bench.trials import Evaluate, Trial, attempt
from solera.core.errors import ConfigError

# Of a sweep: ends a trial whose best figure so far is below the median of the others' at the same round.
_MEDIAN = MedianPruner(n_startup_trials=3, n_warmup_steps=4)
# Optuna learns nothing from failed trials and would propose the like for ever: it is told the worst figure.
_ENDS = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.COMPLETE}
_ATTEMPTS = 2  # times the number of trials: so many are made at most where some diverge

_Distributions = dict[str, BaseDistribution]


def search(
    space: Space,
    effort: Effort,
    evaluate: Evaluate,
    *,
    first: Sequence[Mapping[str, object]] = ({},),
    done: Sequence[Trial] = (),
    on_trial: Callable[[list[Trial]], None] = lambda _: None,
) -> list[Trial]:
    """Make trials until as many as asked for have finished; those `done` before count, and are learned from.

    The `first` trials are of given settings. A trial that diverges is replaced by another, up to as many
    again. Trial n depends on the trials before it and on n alone, so an interrupted search goes on as it
    would have. A space without any option needs no more than the first trials.
    """
    made = list(done)
    while not _enough(space, effort, made, len(first)):
        number = len(made)
        if number < len(first):
            options = dict(first[number])
        else:
            distributions = {option: _distribution(where) for option, where in space.items()}
            study = _empty_study(number, NopPruner())
            for earlier, trial in enumerate(made):
                told = distributions if earlier >= len(first) else {}
                study.add_trial(_as_optuna(trial, told))
            options = rounded(study.ask(distributions).params)
        made.append(attempt(options, evaluate))
        on_trial(made)
    if not any(trial.end == "finished" for trial in made):
        raise ConfigError(
            f"all {len(made)} trials failed; the last error: {made[-1].error}",
            "correct the search space in spaces.toml",
        )
    return made


def _enough(space: Space, effort: Effort, made: Sequence[Trial], first: int) -> bool:
    if len(made) < first or not space:
        return len(made) >= first
    finished = sum(trial.end == "finished" for trial in made)
    return finished >= effort.trials or len(made) >= _ATTEMPTS * effort.trials


def _figure(trial: Trial) -> float | None:
    """The figure that Optuna is told; of a pruned trial it knows those of its rounds."""
    return None if trial.end == "pruned" else trial.ndcg or 0.0


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
        study.add_trial(_as_optuna(made[0], {}))
    asked = study.ask(distributions) if number else study.ask()

    def hopeless(curve: list[float], _: float) -> bool:
        asked.report(max(curve), len(curve))
        return asked.should_prune()

    return attempt(dict(asked.params) if number else {}, evaluate, hopeless)


def importances(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """How much each option matters, by PED-ANOVA, the shares adding up to 1."""
    # It imports scikit-learn, which takes seconds.
    from optuna.importance import (  # noqa: PLC0415
        PedAnovaImportanceEvaluator,
        get_param_importances,
    )

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {option: _distribution(where) for option, where in space.items()}
    study = optuna.create_study(direction="maximize")
    study.add_trials([_as_optuna(trial, distributions) for trial in trials])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())


def _as_optuna(trial: Trial, space: _Distributions) -> optuna.trial.FrozenTrial:
    """A trial as Optuna keeps it. Given settings need not lie in the space: without one, figures alone."""
    best = [max(trial.curve[: n + 1]) for n in range(len(trial.curve))]
    return create_trial(
        state=_ENDS[trial.end],
        value=_figure(trial),
        params=trial.options if space else {},
        distributions=space,
        intermediate_values=dict(enumerate(best, start=1)),
    )
