"""Test vectors of a bundle: random histories and the scores that a reader of the bundle must get for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from solera.core.errors import BundleError
from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged
from solera.device.bundle import Bundle
from solera.device.model import Model, served_from_history

TOLERANCE = 1e-4  # times the largest size of a case's scores
_LISTED = 100  # best items of a case
_LONGEST = 200  # items of a history
_AT_ONCE = 100  # histories that are scored together


def vectors_of(bundle: Bundle, count: int = 20, seed: int = 0) -> dict[str, Any]:
    """Random histories of different lengths with the best items and their scores, as plain JSON types."""
    model = Model(bundle)
    if not model.serves_from_history or not model.shared:
        raise BundleError(
            f"{bundle.path} has no trained model that scores by a history alone",
            f"train one of {', '.join(served_from_history())}, and export it",
        )
    draw = np.random.default_rng(seed)
    longest = min(_LONGEST, bundle.manifest.items - 1)
    lengths = np.unique(np.geomspace(1, longest, count).round().astype(int))
    chosen = [*lengths, *draw.integers(1, longest + 1, count - len(lengths))]
    histories = [draw.choice(bundle.manifest.items, length, replace=False) for length in chosen]
    return {
        "kind": "solera bundle vectors",
        "format": 1,
        "bundle": bundle.digest,
        "method": " & ".join(each.full_method for each in bundle.manifest.models),
        "items": bundle.manifest.items,
        "seed": seed,
        "tolerance": TOLERANCE,
        "cases": [
            _case(model, history, scores)
            for begin in range(0, count, _AT_ONCE)
            for history, scores in _scored(model, histories[begin : begin + _AT_ONCE])
        ],
    }


def _scored(model: Model, histories: Sequence[Ints]) -> Iterator[tuple[Ints, Floats]]:
    lengths = np.array([len(history) for history in histories])
    found = model.scores_of_all(Ragged.of_lengths(lengths, np.concatenate(histories)))
    return zip(histories, found.double().numpy(), strict=True)


def _case(model: Model, history: Ints, scores: Floats) -> dict[str, Any]:
    scores[history] = -np.inf
    best = np.argsort(-scores, kind="stable")[: min(_LISTED, len(scores) - len(history))]
    parts = model.parts(history, [int(best[0])])[0] if model.is_linear else None
    return {
        "history": history.tolist(),
        "items": best.tolist(),
        "scores": scores[best].tolist(),
        "parts": list(parts.of_history) if parts else None,
        "popular": parts.popular if parts else None,
    }
