"""Accuracy and bytes of a one-round method with sketched sums, against the whole sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from solera.core.closed_form import WEIGHTS, ClosedForm
from solera.core.errors import ConfigError
from solera.core.types import Floats, Ints
from solera.data.interactions import Interactions, Split, history
from solera.data.sampling import ClientData
from solera.engine import OneRound
from solera.evaluate import Evaluator, split
from solera.math.sketch import Signs, signs, symmetric_from
from solera.methods import find

VALUE_BYTES = 4  # of a number modulo 2^32


def sketch_accuracy(
    name: str,
    data: Interactions,
    sizes: Iterable[int],
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    on_size: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Full ranking of the test items under `strict`, with the whole sums (size None) and with sketches.

    Sketches are linear and masks cancel, so the total is sketched here, and not one client after the other.
    Bytes are those of a client's vector under the masks.
    """
    method = find(name, options or {})
    if not isinstance(method, ClosedForm):
        raise ConfigError(f"{name!r} is not a method of one round", "use fedease or fedslist")
    aggregate = method.aggregate
    if aggregate.neighbours:
        raise ConfigError("a sketch has no sparse form", "omit -o neighbours=…")
    parts = split(data, "strict")
    evaluator = Evaluator(parts, seed=seed)
    totals = whole_totals(method, parts)
    server = OneRound(
        method,
        ClientData(parts.train, parts.excluded, data.n_items),
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    found = []
    for size in (None, *sizes):
        on_size("whole sums" if size is None else f"sketch of {size}")
        known, values = {}, 0
        for key, total in totals.items():
            symmetric = method.update.sums[key].symmetric
            matrix, sent = _whole(total, symmetric) if size is None else _sketch(total, symmetric, size, seed)
            known[key], values = torch.from_numpy(matrix), values + sent
        server.restore({WEIGHTS: aggregate.solve(known).float()}, {})
        figures = evaluator.test(server.serve(history(parts, "test"))).full
        found.append({"size": size, "bytes": VALUE_BYTES * values, **figures})
    return found


def whole_totals(method: ClosedForm, parts: Split) -> dict[str, Floats]:
    """The clients' sums added up."""
    n_items, sums = parts.data.n_items, method.update.sums
    totals = {name: np.zeros((c.rows * n_items, c.columns * n_items)) for name, c in sums.items()}
    for client in np.flatnonzero(parts.train.lengths):
        made = method.update.of(parts.train.row(int(client)))
        for name, block in made.blocks.items():
            rows, m, columns, _ = block.shape
            where = np.ix_(places(made.items, rows, n_items), places(made.items, columns, n_items))
            totals[name][where] += block.reshape(rows * m, columns * m)
    return totals


def _whole(total: Floats, symmetric: bool) -> tuple[Floats, int]:
    n = len(total)
    return total.copy(), n * (n + 1) // 2 if symmetric else total.size


def _sketch(total: Floats, symmetric: bool, size: int, seed: int) -> tuple[Floats, int]:
    """What the server makes of a sketch, and how many values it has."""
    rows, columns = total.shape
    test = signs(columns, size, seed)
    sketch = total @ test
    if symmetric:
        return symmetric_from(sketch, test), sketch.size
    left_test = signs(rows, 2 * size + 1, seed + 1)
    left = left_test.T @ total
    return rectangular_from(sketch, left, left_test), sketch.size + left.size


def places(items: Ints, channels: int, n_items: int) -> Ints:
    """Indices of distinct items in a matrix that has the channels one after the other."""
    found: Ints = (np.arange(channels)[:, None] * n_items + items).ravel()
    return found


def rectangular_from(sketch: Floats, left_sketch: Floats, left_test: Signs) -> Floats:
    """T̂ = Q (ΨᵀQ)⁺ W from Y = T Ω = Q R and W = Ψᵀ T (Tropp et al., SIAM 2017).

    Ψ has more columns than Ω; twice as many plus one is a good choice.
    """
    basis, _ = np.linalg.qr(sketch)
    found: Floats = basis @ np.linalg.lstsq(left_test.T @ basis, left_sketch, rcond=None)[0]
    return found
