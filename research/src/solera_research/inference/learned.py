"""A learned attack: two small networks, trained on rows with known labels."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from solera.core.types import Floats
from solera_research.inference.attacks import direction
from solera_research.inference.row_changes import SeenRows

_HIDDEN, _STEPS, _RATE, _ROWS = 16, 300, 0.02, 10_000


class Learned:
    """Two networks, one of which knows how popular an item is; and what a row that did not move means.

    It is no interaction where that never happened to an interaction of a shadow client. It may be one where
    training has come so far that the gradients of some positives are rounded to zero.
    """

    def __init__(self, popularity: Floats, *, unmoved_is_no: bool) -> None:
        self._popularity, self._unmoved_is_no = popularity, unmoved_is_no

    def learn(self, inputs: Floats, truth: Floats, draw: np.random.Generator) -> None:
        """Train the networks on rows with known labels."""
        self._alone = Classifier(inputs[:, :-1], truth, draw)
        self._with_popularity = Classifier(inputs, truth, draw)

    def candidates(self, sight: SeenRows) -> SeenRows:
        """The rows that may be interactions."""
        return sight.without_unmoved() if self._unmoved_is_no else sight

    def __call__(self, sight: SeenRows, sent: Floats) -> dict[str, Floats]:
        """The networks' log-odds that a row is an interaction."""
        inputs = features(sight, sent, self._popularity)
        return {
            "shadow": self._alone(inputs[:, :-1]),
            "shadow+popularity": self._with_popularity(inputs),
        }


def features(sight: SeenRows, sent: Floats, popularity: Floats) -> Floats:
    """Of every changed row, in terms that do not depend on who trained: [rows, features].

    Its change along the main direction and its length, both by spread and by rank; how much of the change is
    along that direction; where the row, as sent, stands along it; and last, the item's popularity.
    """
    main = direction(sight)
    along, length = sight.changes @ main, np.linalg.norm(sight.changes, axis=1)
    stands = sent[sight.rows] @ main
    columns = [
        _by_spread(along),
        _by_rank(along),
        _by_spread(np.log(length + 1e-12)),
        _by_rank(length),
        along / (length + 1e-12),
        _by_spread(stands),
        popularity[sight.rows],
    ]
    return np.stack(columns, axis=1)


def _by_spread(values: Floats) -> Floats:
    spread = float(values.std()) if len(values) else 0.0
    return (values - values.mean()) / spread if spread else np.zeros_like(values)


def _by_rank(values: Floats) -> Floats:
    ranks: Floats = np.argsort(np.argsort(values)) / max(1, len(values) - 1)
    return ranks


class Classifier:
    """Classifier with one hidden layer, trained on rows with known labels."""

    def __init__(self, inputs: Floats, truth: Floats, draw: np.random.Generator) -> None:
        some = draw.permutation(len(inputs))[:_ROWS]
        self._mean, self._spread = inputs.mean(0), inputs.std(0) + 1e-9
        x, y = self._tensor(inputs[some]), torch.from_numpy(truth[some]).float()
        sizes = ((_HIDDEN, inputs.shape[1]), (_HIDDEN,), (1, _HIDDEN), (1,))
        starts = (draw.standard_normal(size) * 0.3 for size in sizes)
        self._layers = [torch.from_numpy(start).float().requires_grad_() for start in starts]
        optimizer = torch.optim.Adam(self._layers, lr=_RATE)
        for _ in range(_STEPS):
            loss = nn.functional.binary_cross_entropy_with_logits(self._logits(x), y)
            for layer, slope in zip(self._layers, torch.autograd.grad(loss, self._layers), strict=True):
                layer.grad = slope
            optimizer.step()

    def __call__(self, inputs: Floats) -> Floats:
        """Log-odds that each row is an interaction."""
        with torch.no_grad():
            found: Floats = self._logits(self._tensor(inputs)).double().numpy()
        return found

    def _tensor(self, inputs: Floats) -> torch.Tensor:
        return torch.from_numpy((inputs - self._mean) / self._spread).float()

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        into, bias, out, shift = self._layers
        hidden = torch.relu(nn.functional.linear(x, into, bias))
        return nn.functional.linear(hidden, out, shift).squeeze(-1)
