"""The second test of a model, so that all models are compared on equal terms.

Test items are ranked once with models that know training items alone, and once with models that also know
the validation item. A model that scores by histories reads it. A model with trained personal parameters has
them refreshed on the device (`engine.serving`). A graph gets it as an edge. The validation item is no
candidate in either test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

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
from solera.runs.result import READ, Tested

EPOCHS = REFRESH_ROUNDS  # of a centralized baseline, where an epoch stands for a round


class SecondTest(NamedTuple):
    """How the other of the two tests is scored, and how the validation item reaches the model.

    There is no `score` where the model cannot use the validation item.
    """

    how: str
    score: Callable[[], Score] | None

    def figures(self, first: Evaluation, second: Evaluation | None) -> dict[str, Any]:
        """The fields of a result, from both tests."""
        one, other = Tested.of(first), Tested.of(second) if second else None
        train, longer = (other, one) if self.how == READ else (one, other)
        return {"test_train": train, "test_validation": longer, "validation_item": self.how}


def second_test(
    federation: Federation,
    split: Split,
    rounds: int,
) -> SecondTest:
    """The second test of a federation after so many rounds."""
    if isinstance(federation, OneRound) or federation.method.scorer.learns_from != "items":
        return SecondTest(READ, lambda: federation.serve(split.train))
    if federation.share.ranks:
        return SecondTest("not used: several workers cannot refresh personal leaves yet", None)
    leaves = refreshed_leaves(federation, rounds)
    if not leaves:
        return SecondTest("not used: clients keep nothing of their training", None)

    def score() -> Score:
        clients = np.flatnonzero(split.validation.lengths)
        data = _longer(federation.method, split)
        return refreshed(federation, data, clients, rounds).serve(history(split, "test"))

    local = counted(refresh_rounds(rounds), "local round", "local rounds")
    return SecondTest(f"{', '.join(leaves)} refreshed in {local}", score)


def second_test_of_baseline(model: Baseline, split: Split) -> SecondTest:
    """The second test of a fitted baseline."""
    if not model.refreshes:
        return SecondTest(READ, lambda: lambda users: model.scores(users, split.train))

    def score() -> Score:
        longer = with_validation(split)
        knowing = model.refreshed(longer, EPOCHS)
        return lambda users: knowing.scores(users, longer.train)

    return SecondTest(model.refreshes.format(epochs=EPOCHS), score)


def _longer(method: Method, split: Split) -> ClientData:
    """The clients with the validation item. Popular negatives are popular among training items, as before."""
    clients, longer = clients_of(split), with_validation(split)
    if method.popularity_power:
        clients = clients.by_popularity(method.popularity_power)
    return replace(clients, train=longer.train, excluded=longer.excluded)
