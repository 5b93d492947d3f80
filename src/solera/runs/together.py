"""A run on several ranks: what they evaluate and save together."""

from __future__ import annotations

import numpy as np

from solera.core.arrays import Floats, Ints
from solera.engine.ranks import Ranks
from solera.evaluate import Evaluation
from solera.evaluate.ranking import Ranking


def together(ranks: Ranks, own: Evaluation) -> Evaluation:
    """The evaluation of all ranks' users, on every rank."""
    return Evaluation(_joined(ranks, own.full_ranking), _joined(ranks, own.sampled99_ranking))


def _joined(ranks: Ranks, own: Ranking) -> Ranking:
    parts: list[tuple[Ints, Ints, Floats]] = ranks.gathered((own.users, own.counts, own.places))
    users, counts, places = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(users)
    starts = (np.cumsum(counts) - counts)[order]
    sizes = counts[order]
    rows = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return Ranking(users[order], sizes, places[rows], own.cutoffs)
