"""A data set split by a protocol: training items, held-out items, and items excluded as negatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from solera.core.types import Ints
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged

Part = Literal["validation", "test"]


@dataclass(frozen=True, eq=False)
class Split:
    """One data set split by one protocol. Every `Ragged` has one row per user of `data`.

    `excluded` are the items that are never drawn as a user's training negatives, sorted. Under an
    honest protocol these are only the training items; a held-out item among them is the papers' leak.
    """

    data: Interactions
    protocol: str
    leaky: bool
    train: Ragged  # oldest first
    validation: Ragged
    test: Ragged
    excluded: Ragged


def history(split: Split, part: Part, users: Ints | None = None) -> Ragged:
    """The items a device knows when `part` is evaluated: training items, for the test also validation.

    Every user has a row, or every one of `users`.
    """
    train, validation = (
        rows if users is None else rows.take(users) for rows in (split.train, split.validation)
    )
    return train if part == "validation" else train.concat(validation)


def when_asked(split: Split) -> Ragged:
    """The histories of the test, with the day of every user's first test item as that of the request."""
    known, test = history(split, "test"), split.test
    if known.days is None or test.days is None:
        return known
    asked = np.zeros(len(test))
    some = test.lengths > 0
    asked[some] = test.days[test.offsets[:-1][some]]
    return replace(known, asked=asked)


def with_validation(split: Split) -> Split:
    """The split whose training items also have the validation items, newest last."""
    train, excluded = history(split, "test"), split.excluded.concat(split.validation).sorted_unique()
    return replace(split, train=train, excluded=excluded)
