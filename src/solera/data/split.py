"""What a protocol makes of a data set: what trains, what is held out, what may be a negative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from solera.data.interactions import Interactions
from solera.data.ragged import Ragged

Part = Literal["validation", "test"]


@dataclass(frozen=True, eq=False)
class Split:
    """One data set under one protocol. Every `Ragged` has one row per user of `data`.

    `excluded` are the items that are never drawn as a user's training negatives, sorted. Under an
    honest protocol these are the training items alone; a held-out item in it is the papers' leak.
    """

    data: Interactions
    protocol: str
    leaky: bool
    train: Ragged  # oldest first
    validation: Ragged
    test: Ragged
    excluded: Ragged


def history(split: Split, part: Part) -> Ragged:
    """What a device knows when `part` is asked: its training items, and at test time validation too."""
    return split.train if part == "validation" else split.train.concat(split.validation)
