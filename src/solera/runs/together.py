"""A run on several ranks: what they evaluate and save together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from solera.data.ragged import Ragged
from solera.engine.ranks import Ranks
from solera.evaluate import Evaluation, Ranking


def together(ranks: Ranks, own: Evaluation) -> Evaluation:
    """The evaluation of all ranks' users, on every rank."""
    rankings = _joined(ranks, own.full_ranking), _joined(ranks, own.sampled99_ranking)
    if own.warm_ranking is None or own.lists is None:
        return Evaluation(*rankings)
    lists = own.lists.joined(zip(*_gathered(ranks, *own.lists.part), strict=True))
    return Evaluation(*rankings, _joined(ranks, own.warm_ranking), lists)


def _joined(ranks: Ranks, own: Ranking) -> Ranking:
    gathered = _gathered(ranks, own.users, own.counts, own.places)
    users, counts, places = (np.concatenate(each) for each in gathered)
    order = np.argsort(users)
    rows = Ragged.of_lengths(counts, np.arange(len(places))).take(order)
    return Ranking(users[order], rows.lengths, places[rows.values], own.cutoffs)


def _gathered(ranks: Ranks, *own: NDArray[Any]) -> Iterator[list[NDArray[Any]]]:
    """Every array, as all ranks have it."""
    parts = ranks.gathered({str(number): torch.tensor(each) for number, each in enumerate(own)})
    return ([part[str(number)].numpy() for part in parts] for number in range(len(own)))
