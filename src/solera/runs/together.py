"""A run on several ranks: what they evaluate and save together."""

from __future__ import annotations

import numpy as np

from solera.core.arrays import Floats, Ints
from solera.data.ragged import Ragged
from solera.engine.ranks import Ranks
from solera.evaluate import Evaluation, Ranking


def together(ranks: Ranks, own: Evaluation) -> Evaluation:
    """The evaluation of all ranks' users, on every rank."""
    rankings = _joined(ranks, own.full_ranking), _joined(ranks, own.sampled99_ranking)
    if own.warm_ranking is None or own.lists is None:
        return Evaluation(*rankings)
    return Evaluation(
        *rankings, _joined(ranks, own.warm_ranking), own.lists.joined(ranks.gathered(own.lists.part))
    )


def _joined(ranks: Ranks, own: Ranking) -> Ranking:
    parts: list[tuple[Ints, Ints, Floats]] = ranks.gathered((own.users, own.counts, own.places))
    users, counts, places = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(users)
    rows = Ragged.of_lengths(counts, np.arange(len(places))).take(order)
    return Ranking(users[order], rows.lengths, places[rows.values], own.cutoffs)
