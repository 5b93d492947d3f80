"""Recommendations from a history and a model, with the items of the history that speak for each."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from solera.core.types import Floats, Ints
from solera.device.bundle import Item
from solera.device.catalogue import Catalogue
from solera.device.dates import DAY, days_of

if TYPE_CHECKING:
    from solera.device.models.served import Served

_DISLIKE = (
    0.5  # of the distance between the best score and the mean: what the item most like a disliked one loses
)
_LEAST = 1e-12  # standard deviation, so that equal scores become 0


class Reason(NamedTuple):
    """An item of the own history that raised a score, and by how much."""

    item: str
    title: str
    part: float


class Because(NamedTuple):
    """Why an item is recommended to one person: `raised` is the sum of all that raised its score."""

    reasons: tuple[Reason, ...] = ()
    raised: float = 0.0
    popular: float = 0.0


class DeviceRecommendation(NamedTuple):
    """One recommended item; its score is the sum of the reasons, the other items' part and its popularity.

    For several people together it is that of the person who likes it least, in standard deviations.
    `raised` is the sum of all that raised the score; `of_others` says why the others are recommended it.
    """

    rank: int
    item: str
    title: str
    score: float
    reasons: tuple[Reason, ...] = ()
    others: float = 0.0
    popular: float = 0.0
    raised: float = 0.0
    of_others: tuple[Because, ...] = ()


class Person(NamedTuple):
    """Somebody to recommend to; `times` are the items of the history, oldest first, with their times."""

    model: Served
    times: Mapping[str, int | None]
    disliked: Collection[str] = ()


def recommend(
    people: Sequence[Person],
    catalogue: Catalogue,
    *,
    left_out: Collection[str],
    k: int,
    reasons: int = 0,
    allowed: Callable[[Item], bool] | None = None,
) -> list[DeviceRecommendation]:
    """The k best items for people together; reasons are the first person's, and those of the others apart."""
    known, items = catalogue.number, catalogue.items
    scores = [_scores(each, known) for each in people]
    together = scores[0]
    if len(people) > 1:
        standard = [(each - each.mean()) / max(float(each.std()), _LEAST) for each in scores]
        together = np.minimum.reduce(standard)
    shown = np.ones(len(items), dtype=bool)
    shown[[known[item] for item in left_out if item in known]] = False
    if allowed is not None:
        shown &= [allowed(item) for item in items]
    order = np.argsort(-together, kind="stable")
    best = order[shown[order]][:k].tolist()
    found = [
        DeviceRecommendation(rank, items[row].id, items[row].title, float(together[row]))
        for rank, row in enumerate(best, start=1)
    ]
    if not reasons or not found:
        return found
    why = [_because(each, catalogue, best, reasons) for each in people]
    explained = []
    for one, mine, *theirs in zip(found, *why, strict=True):
        others = one.score - mine.popular - sum(reason.part for reason in mine.reasons)
        explained.append(one._replace(**mine._asdict(), others=others, of_others=tuple(theirs)))
    return explained


def _known(person: Person, number: Mapping[str, int]) -> tuple[Ints, Floats | None, float]:
    """A history as a model takes it: rows, days, and now."""
    rows = np.array([number[item] for item in person.times], dtype=np.int64)
    return rows, days_of(list(person.times.values())), clock.time() / DAY


def _scores(person: Person, number: Mapping[str, int]) -> Floats:
    """Scores of all items. What is like a disliked item loses as much as it is like it."""
    scores = person.model.scores(*_known(person, number))
    most = _DISLIKE * float(scores.max() - scores.mean()) if len(scores) else 0.0
    for row in (number[item] for item in person.disliked if item in number):
        like = np.maximum(person.model.similarity(row), 0.0)
        like[row] = 0.0
        scores = scores - most * like / max(float(like.max()), _LEAST)
    return scores


def _because(person: Person, catalogue: Catalogue, best: Sequence[int], count: int) -> list[Because]:
    rows, days, asked = _known(person, catalogue.number)
    history, found = list(person.times), []
    for parts in person.model.parts(rows, best, days, asked):
        of_history = np.array(parts.of_history, dtype=np.float64)
        order = np.argsort(-of_history, kind="stable")[:count].tolist()
        most = tuple(
            Reason(history[at], catalogue.items[rows[at]].title, float(of_history[at]))
            for at in order
            if of_history[at] > 0
        )
        raised = float(np.maximum(of_history, 0.0).sum()) + max(parts.popular, 0.0)
        found.append(Because(most, raised, parts.popular))
    return found
