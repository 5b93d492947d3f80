"""What is shown of a user's scores."""

from __future__ import annotations

import torch
from torch import Tensor

from solera.data.ragged import Ints


def best_unseen(scores: Tensor, seen: Ints, k: int) -> list[tuple[int, float]]:
    """The k best items [n_items] that are not among the seen ones, with their scores, best first."""
    known = torch.from_numpy(seen)
    scores[known] = -torch.inf
    best = torch.topk(scores, min(k, len(scores) - len(torch.unique(known))))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
