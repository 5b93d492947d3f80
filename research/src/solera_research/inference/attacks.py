"""Attacks without training, based on how item rows changed.

An attack says for every row that was sent how much speaks for an interaction. Training samples hold all of
a client's items, so a row that was not sent is no interaction, in whatever attack. Evidence is in units of
its own spread, so that the evidence of several rounds can be added up.
"""

from __future__ import annotations

import numpy as np

from solera.core.types import Floats
from solera_research.inference.row_changes import SeenRows


def touched(sight: SeenRows) -> Floats:
    """That the row changed at all, and nothing else: what is left for the others to find out."""
    return sight.moved.astype(np.float64)


def norm(sight: SeenRows) -> Floats:
    """The length of a row's change. A model that expects nobody to choose anything errs most on positives."""
    lengths = np.linalg.norm(sight.changes, axis=1)
    return _scaled(lengths - lengths.mean()) if len(lengths) else lengths


def sign(sight: SeenRows) -> Floats:
    """A row's change along the direction in which most of all changes lie, turned so that most are negative.

    Where a score is ⟨user, item⟩, every sample moves its row along the user's vector: positives one way,
    negatives the other. So that vector is the first right singular vector of all changes, up to its sign; and
    the side with fewer rows is that of the positives, since several negatives are drawn for each of them.
    """
    return _scaled(sight.changes @ direction(sight))


def direction(sight: SeenRows) -> Floats:
    """The first right singular vector, with the sign for which most rows moved against it.

    Rows that noise may have moved as far (three standard deviations) have no say in that.
    """
    _, vectors = np.linalg.eigh(sight.changes.T @ sight.changes)
    first: Floats = vectors[:, -1]
    along = sight.changes @ first
    majority = np.sign(along[np.abs(along) > 3 * sight.noise]).sum()
    return -first if majority > 0 else first


def _scaled(values: Floats) -> Floats:
    spread = float(np.sqrt(np.mean(values**2))) if len(values) else 0.0
    return values / spread if spread else values


ATTACKS = {"touched": touched, "norm": norm, "sign": sign}
