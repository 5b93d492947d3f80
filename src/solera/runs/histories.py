"""The two tests of a model, so that all models are compared on equal terms.

`test` ranks test items by models that know a user's training items and validation item, `test_train` by
models that know the training items alone. A model that scores by histories reads the longer or the shorter
one. A model with trained personal parameters has them refreshed on the device for `test` (`engine.serving`).
A graph gets the validation item as an edge. The validation item is no candidate in either test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from solera.baselines.training import Baseline
from solera.core.method import Method
from solera.core.text import counted
from solera.data.interactions import Split, history, with_validation
from solera.data.sampling import ClientData
from solera.engine import OneRound
from solera.engine.serving import REFRESH_ROUNDS, refresh_rounds, refreshed, refreshed_leaves
from solera.evaluate import Evaluation, Score
from solera.runs.federation import Federation, clients_of
from solera.runs.result import TestName

EPOCHS = REFRESH_ROUNDS  # of a centralized baseline, where an epoch stands for a round


class Tests(NamedTuple):
    """How both tests are scored, the one that refreshes nothing first, and what `test` refreshes."""

    scores: dict[TestName, Callable[[], Score]]
    refresh: str | None = None

    def evaluated(
        self, split: Split, evaluate: Callable[[Score], Evaluation], *, both: bool
    ) -> dict[TestName, Evaluation]:
        """The tests of a run.

        A leaky protocol has `test_train` alone, as in the papers. Without `both`, the first one is made.
        """
        if split.leaky:
            return {"test_train": evaluate(self.scores["test_train"]())}
        names = list(self.scores) if both else list(self.scores)[:1]
        return {name: evaluate(self.scores[name]()) for name in names}


def tests_of(federation: Federation, split: Split, rounds: int) -> Tests:
    """The tests of a federation after so many rounds."""
    longer = history(split, "test")
    if isinstance(federation, OneRound) or federation.method.scorer.learns_from != "items":
        return Tests(
            {"test": lambda: federation.serve(longer), "test_train": lambda: federation.serve(split.train)}
        )
    as_trained: dict[TestName, Callable[[], Score]] = {"test_train": lambda: federation.serve(longer)}
    if federation.share.ranks:
        return Tests(as_trained, "none: several workers cannot refresh personal leaves yet")
    leaves = refreshed_leaves(federation, rounds)
    if not leaves:
        return Tests(as_trained | {"test": as_trained["test_train"]}, "none: clients keep nothing")

    def score() -> Score:
        clients = np.flatnonzero(split.validation.lengths)
        data = _longer(federation.method, split)
        return refreshed(federation, data, clients, rounds).serve(longer)

    local = counted(refresh_rounds(rounds), "local round", "local rounds")
    return Tests(as_trained | {"test": score}, f"{', '.join(leaves)} refreshed in {local}")


def tests_of_baseline(model: Baseline, split: Split) -> Tests:
    """The tests of a fitted baseline."""
    longer = history(split, "test")
    if not model.refreshes:
        return Tests(
            {
                "test": lambda: lambda users: model.scores(users, longer),
                "test_train": lambda: lambda users: model.scores(users, split.train),
            }
        )

    def score() -> Score:
        knowing = model.refreshed(with_validation(split), EPOCHS)
        return lambda users: knowing.scores(users, longer)

    return Tests(
        {"test_train": lambda: lambda users: model.scores(users, longer), "test": score},
        model.refreshes.format(epochs=EPOCHS),
    )


def _longer(method: Method, split: Split) -> ClientData:
    """The clients with the validation item. Popular negatives are popular among training items, as before."""
    clients, longer = clients_of(split), with_validation(split)
    if method.popularity_power:
        clients = clients.by_popularity(method.popularity_power)
    return replace(clients, train=longer.train, excluded=longer.excluded)
