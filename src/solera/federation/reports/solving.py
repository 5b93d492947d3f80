"""A model from what a server of reports has opened, signed as a bundle that devices take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from solera.core.closed_form import NEIGHBOURS, WEIGHTS, ClosedForm
from solera.core.errors import DeployError
from solera.core.sparse import Rows, SparseTotal
from solera.device.bundle import Bundle
from solera.device.publish import check_signer, trained_on_devices
from solera.device.reports import SOLVED_FROM
from solera.methods import find
from solera.privacy.reports.measurements import ITEM, ORDERED, Measurement

_DEFAULTS: dict[str, Any] = {"neighbours": 100}  # a sum of opened pairs is sparse


class Solved(NamedTuple):
    """What came of it."""

    bundle: Bundle
    counted: int  # items and pairs that the model is made of
    left_out: int  # those that are not of the catalogue


def solve(
    old: Bundle,
    counts: Mapping[Measurement, int],
    output: Path,
    key: Path,
    *,
    options: Mapping[str, Any] | None = None,
    trained: Mapping[str, Any] | None = None,
) -> Solved:
    """Solve the method of a bundle from counts, and write it with the same catalogue.

    The threshold is in the counts already: all of them are used. Whoever makes up reports can make up items
    and distances, so what is not of the catalogue or too far apart for the method is left out.
    """
    manifest = old.manifest
    if manifest.second or manifest.method not in SOLVED_FROM:
        raise DeployError(
            f"{old.path} is of {manifest.full_method}, which is not solved from items and pairs",
            "make one: solera bundle new fedease --catalogue items.csv -o films.bundle --key publisher.key",
        )
    check_signer(old, key)
    asked = _DEFAULTS | {name: value for name, value in manifest.options.items() if value}
    chosen = asked | {"least_clients": 1} | dict(options or {})
    method = find(manifest.method, chosen)
    assert isinstance(method, ClosedForm)
    kinds = SOLVED_FROM[manifest.method]
    lags = method.update.sums["ordered"].rows if ORDERED in kinds else 1
    wanted = {
        each: devices
        for each, devices in counts.items()
        if each.kind in kinds and max(each.first, each.second) < manifest.items and each.lag < lags
    }
    if not any(each.kind != ITEM for each in wanted):
        raise DeployError(
            f"no pair of items that {manifest.method} reads has been opened",
            "wait for another epoch, agree on a longer one, or on a smaller --least-devices",
        )
    ids, weights = method.aggregate.solve_sparse(totals(method, wanted, manifest.items))
    shared = {NEIGHBOURS: ids, WEIGHTS: weights.float()}
    told = {"measurements": len(wanted), **(trained or {})}
    taken = method.config.model_dump(mode="json")
    bundle = trained_on_devices(old, shared, output, key, told, options=taken)
    return Solved(bundle, len(wanted), len(counts) - len(wanted))


def totals(method: ClosedForm, counts: Mapping[Measurement, int], n_items: int) -> dict[str, Rows]:
    """The sums of a method from counts of items and pairs, as `SparseSum` has them."""
    found = {
        name: SparseTotal(n_items, n_items * each.rows, np.float32)
        for name, each in method.update.sums.items()
    }
    pairs, items = found.get("ordered"), found.get("items") or found["gram"]
    of = np.array([(*each, devices) for each, devices in counts.items()], dtype=np.int64).reshape(-1, 5)
    kind, first, second, lag, devices = of.T
    ordered = kind == ORDERED
    items.add(first[~ordered], second[~ordered], devices[~ordered])
    if pairs is not None:
        classes = method.update.sums["ordered"].rows
        pairs.add(second[ordered], first[ordered] * classes + lag[ordered], devices[ordered])
    return {name: each.take() for name, each in found.items()}
