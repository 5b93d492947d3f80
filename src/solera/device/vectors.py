"""Test vectors of a bundle: random histories and the scores that a reader of the bundle must get for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solera.core.errors import BundleError
from solera.core.types import Ints
from solera.device.bundle import Bundle
from solera.device.models.opened import open_model
from solera.device.models.served import FROM_HISTORY, Served

TOLERANCE = 1e-4  # times the largest size of a case's scores
_LISTED = 100  # best items of a case
_LONGEST = 200  # items of a history


def vectors_of(bundle: Bundle, count: int = 20, seed: int = 0) -> dict[str, Any]:
    """Random histories of different lengths with the best items and their scores, as plain JSON types."""
    model = open_model(bundle)
    if not model.serves_from_history:
        raise BundleError(
            f"{bundle.path} has no trained model that scores by a history alone",
            f"train one of {', '.join(FROM_HISTORY)}, and export it",
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
        "cases": [_case(model, history) for history in histories],
    }


def _case(model: Served, history: Ints) -> dict[str, Any]:
    best = model.best(history, history, _LISTED)
    parts = model.parts(history, [best[0][0]])[0] if model.is_linear else None
    return {
        "history": history.tolist(),
        "items": [item for item, _ in best],
        "scores": [score for _, score in best],
        "parts": list(parts.of_history) if parts else None,
        "popular": parts.popular if parts else None,
    }
