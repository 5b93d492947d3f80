"""Metrics of attacks: how well a ranking finds the items that a client, or a sum, interacted with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from solera.core.frozen import Frozen
from solera.core.types import Floats
from solera_research.inference.row_changes import Mask


class Success(NamedTuple):
    """Metrics of an attack on one client. An AUC is None without positives or without negatives."""

    auc: float | None
    precision: float
    auc_touched: float | None
    chance: float


class Figures(Frozen):
    """Means over the attacked clients.

    `auc` and `precision` (of as many items as there are to find) are over the whole catalogue; `auc_touched`
    is over the rows that were sent, without the clients where all of these are interactions. `chance` is the
    precision of guessing, `auc_error` the standard error of `auc`.
    """

    clients: int
    auc: float | None
    auc_error: float | None
    precision: float
    auc_touched: float | None
    chance: float

    @classmethod
    def of(cls, each: Sequence[Success]) -> Figures:
        """Means over clients."""
        aucs = [one.auc for one in each if one.auc is not None]
        return cls(
            clients=len(each),
            auc=_mean(aucs),
            auc_error=float(np.std(aucs, ddof=1) / np.sqrt(len(aucs))) if len(aucs) > 1 else None,
            precision=float(np.mean([one.precision for one in each])),
            auc_touched=_mean([one.auc_touched for one in each if one.auc_touched is not None]),
            chance=float(np.mean([one.chance for one in each])),
        )


class Finding(BaseModel):
    """What one attack finds in uploads of some rounds, of single clients or of sums over several."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attack: str
    first_round: int
    last_round: int
    summed: int  # clients in a sum; 1 is a client's own upload
    target: Figures  # which items are the attacked client's
    anybody: Figures | None = None  # of a sum: which items anybody in it has

    @property
    def rounds(self) -> str:
        """The attacked rounds, in words."""
        return rounds_in_words(self.first_round, self.last_round)


def rounds_in_words(first: int, last: int) -> str:
    """Of one round, or of all from one to another."""
    return f"round {first}" if first == last else f"rounds {first} to {last}"


class Tally:
    """Successes of all attacks on one kind of thing, client after client."""

    def __init__(self) -> None:
        self._target: dict[str, list[Success]] = {}
        self._anybody: dict[str, list[Success]] = {}

    def add(self, evidence: Mapping[str, Floats], target: Mask, anybody: Mask | None = None) -> None:
        """What the attacks say of one upload or sum, and how it is."""
        for name, each in evidence.items():
            self._target.setdefault(name, []).append(success(each, target))
            if anybody is not None:
                self._anybody.setdefault(name, []).append(success(each, anybody))

    def findings(self, first_round: int, last_round: int, summed: int) -> list[Finding]:
        """Findings, one per attack."""
        return [
            Finding(
                attack=name,
                first_round=first_round,
                last_round=last_round,
                summed=summed,
                target=Figures.of(each),
                anybody=Figures.of(self._anybody[name]) if name in self._anybody else None,
            )
            for name, each in self._target.items()
        ]

    def auc(self, attack: str) -> float | None:
        """The mean so far, None without any."""
        return _mean([one.auc for one in self._target.get(attack, ()) if one.auc is not None])


def success(evidence: Floats, truth: Mask) -> Success:
    """Metrics of one ranking. A score of −inf means that the row was not sent."""
    sent = evidence > -np.inf
    return Success(
        auc(evidence, truth),
        precision(evidence, truth),
        auc(evidence[sent], truth[sent]),
        float(truth.mean()),
    )


def auc(scores: Floats, truth: Mask) -> float | None:
    """Area under the ROC curve; ties count half. None without positives or without negatives."""
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if not positives or not negatives:
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def precision(scores: Floats, truth: Mask) -> float:
    """The share of positives among as many items as there are positives; on average, where ties are cut."""
    n = int(truth.sum())
    if not n:
        return 0.0
    last = np.partition(scores, len(scores) - n)[len(scores) - n]
    above, tied = scores > last, scores == last
    return float((truth[above].sum() + (n - above.sum()) * truth[tied].mean()) / n)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
