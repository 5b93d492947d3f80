"""Compact weights of one-round methods in bundles: the largest weights, in 8 bits."""

from __future__ import annotations

import math

import torch

from solera.core.closed_form import WEIGHTS, ClosedForm
from solera.core.errors import BundleError
from solera.core.leaf import Params
from solera.device.bundle import Bundle
from solera.math.sparse_ridge import COMPACT, COUNTS, LEVELS, SCALES, SOURCES, Neighbours

_KEPT = 6  # weights per item on average, times the square root of the number of sources,
_LEAST = 300  # and at least this many

_KINDS = {
    COUNTS: (torch.int32,),
    SCALES: (torch.float32,),
    SOURCES: (torch.uint16, torch.int32),
    LEVELS: (torch.int8,),
}


def compacted(method: ClosedForm, tensors: Params, n_items: int) -> Params:
    """The compact form of a solved model."""
    channels = method.scorer.channels
    each = max(_LEAST, math.ceil(_KEPT * math.sqrt(channels * n_items)))
    found = Neighbours.of(tensors, channels) or Neighbours.largest(tensors[WEIGHTS], channels, each)
    return found.compact(each)


def check_compact(bundle: Bundle, tensors: Params, n_items: int) -> None:
    """Refuse tensors that are not weights of so many items; which sources they have is checked elsewhere."""
    wrong = None
    if set(tensors) != set(COMPACT):
        wrong = f"the tensors {', '.join(sorted(tensors))}"
    elif any(tensors[name].dtype not in kinds or tensors[name].dim() != 1 for name, kinds in _KINDS.items()):
        wrong = "weights of another type"
    elif not len(tensors[COUNTS]) == len(tensors[SCALES]) == n_items:
        wrong = "weights of another number of items"
    elif int(tensors[COUNTS].min()) < 0 or not (
        int(tensors[COUNTS].sum()) == len(tensors[SOURCES]) == len(tensors[LEVELS])
    ):
        wrong = "weights that do not fit their counts"
    elif not bool(torch.isfinite(tensors[SCALES]).all()):
        wrong = "weights that are not finite"
    if wrong:
        raise BundleError(
            f"{bundle.path} has {wrong}, not compact weights", "ask the publisher for a new bundle"
        )
