"""Searches for settings by Optuna, in its own storage: interrupted ones go on as they would have."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from solera.core.errors import ConfigError
from solera.study.budget import Effort
from solera.study.search_space import Range, Space
from solera.study.trials import Evaluate, Trial, attempt

# Of a sweep: ends a trial whose best figure so far is below the median of the others' at the same round.
MEDIAN = MedianPruner(n_startup_trials=3, n_warmup_steps=4)
_ATTEMPTS = 2  # times the number of trials: so many are made at most where some diverge
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)  # others were interrupted

optuna.logging.set_verbosity(optuna.logging.ERROR)


def search(
    storage: Path,
    space: Space,
    effort: Effort,
    evaluate: Evaluate,
    *,
    asked: Mapping[str, Any] | None = None,
    first: Sequence[Mapping[str, Any]] = ({},),
    on_trial: Callable[[list[Trial]], None] = lambda _: None,
) -> list[Trial]:
    """Make trials until as many as asked for have finished; those in the storage count.

    The `first` trials are of given settings. A trial that diverges is replaced by another, up to as many
    again. Trial n depends on the trials before it and on n alone. A space without any option needs no more
    than the first trials. A storage of another search than the one `asked` for is begun anew.
    """
    study = opened(storage)
    if study.user_attrs.get("asked", asked) != asked:
        storage.unlink()
        study = opened(storage)
    study.set_user_attr("asked", asked)
    made = trials_of(study)
    if made:
        on_trial(made)
    while not _enough(space, effort, made, len(first)):
        given = first[len(made)] if len(made) < len(first) else None
        made.append(next_trial(study, space, len(made), evaluate, given))
        on_trial(made)
    if not any(trial.end == "finished" for trial in made):
        raise ConfigError(
            f"all {len(made)} trials failed; the last error: {made[-1].error}",
            "correct the search space in search_spaces.toml",
        )
    return made


def _enough(space: Space, effort: Effort, made: Sequence[Trial], first: int) -> bool:
    if len(made) < first or not space:
        return len(made) >= first
    finished = sum(trial.end == "finished" for trial in made)
    return finished >= effort.trials or len(made) >= _ATTEMPTS * effort.trials


def opened(storage: Path, pruner: BasePruner | None = None) -> optuna.Study:
    """The study in a journal file, which is made if it is not there."""
    storage.parent.mkdir(parents=True, exist_ok=True)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(storage))),
        study_name="solera",
        direction="maximize",
        pruner=pruner or NopPruner(),
        load_if_exists=True,
    )


def trials_of(study: optuna.Study) -> list[Trial]:
    """The trials that have ended."""
    return [Trial.model_validate(each.user_attrs["trial"]) for each in study.get_trials(states=_ENDED)]


def next_trial(
    study: optuna.Study,
    space: Space,
    number: int,
    evaluate: Evaluate,
    given: Mapping[str, Any] | None = None,
) -> Trial:
    """Make the trial of that number, with given settings or those that Optuna proposes.

    Given settings need not lie in the space. Optuna learns nothing from failed trials and would propose the
    like for ever: it is told the worst figure.
    """
    study.sampler = _FourDigits(seed=number, n_startup_trials=4)
    distributions = {option: _distribution(where) for option, where in space.items()}
    proposed = study.ask(distributions if given is None else {})

    def hopeless(curve: Sequence[float]) -> bool:
        proposed.report(max(curve), len(curve))
        return proposed.should_prune()

    prunes = not isinstance(study.pruner, NopPruner)
    options = dict(proposed.params if given is None else given)
    try:
        made = attempt(options, evaluate, *([hopeless] if prunes else []))
    except BaseException:
        study.tell(proposed, state=TrialState.FAIL)
        raise
    proposed.set_user_attr("trial", made.model_dump(mode="json"))
    if made.end == "pruned":
        study.tell(proposed, state=TrialState.PRUNED)
    else:
        study.tell(proposed, made.ndcg or 0.0)
    return made


class _FourDigits(TPESampler):
    """Proposes numbers as a preset writes them."""

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        value = super().sample_independent(study, trial, param_name, param_distribution)
        if isinstance(param_distribution, FloatDistribution):
            return min(max(float(f"{value:.4g}"), param_distribution.low), param_distribution.high)
        return value


def _distribution(where: Range) -> BaseDistribution:
    if where.choices is not None:
        return CategoricalDistribution(where.choices)
    assert where.low is not None and where.high is not None
    if where.whole:
        return IntDistribution(int(where.low), int(where.high), log=where.log)
    return FloatDistribution(where.low, where.high, log=where.log)


def importances(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """How much each option matters in finished trials, by PED-ANOVA, the shares adding up to 1."""
    # It imports scikit-learn, which takes seconds.
    from optuna.importance import (  # noqa: PLC0415
        PedAnovaImportanceEvaluator,
        get_param_importances,
    )

    distributions = {option: _distribution(where) for option, where in space.items()}
    study = optuna.create_study(direction="maximize")
    for trial in trials:
        study.add_trial(create_trial(params=trial.options, distributions=distributions, value=trial.ndcg))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
