"""Accuracy of a one-round method from the pairs that at least T clients have, and bytes of the reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from solera.core.closed_form import NEIGHBOURS, WEIGHTS, ClosedForm
from solera.core.errors import ConfigError
from solera.core.sparse import Rows, SparseTotal
from solera.data.interactions import Interactions, Split, history
from solera.data.sampling import ClientData
from solera.engine.one_round import OneRound, SparseSum, contribution_of
from solera.evaluate import Evaluator, split
from solera.methods import find
from solera.privacy.reports.report import SEALED_BYTES

VALIDATED = 5000  # users whose validation items choose the regularizer


def threshold_accuracy(
    name: str,
    data: Interactions,
    thresholds: Iterable[int],
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    epochs: int = 1,
    regs: Sequence[float] = (30.0,),
    users: int | None = None,
    on_size: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Full ranking of the test items under `strict`, for every threshold with the best regularizer.

    It is chosen on the validation items of some users, drawn by `seed`. All are tried: what is opened is not
    positive definite, and a larger one can be better after a worse one. With `users`, so many are drawn, and
    their items alone are ranked, in validation and test; everybody counts in the sums. Nothing else is drawn.
    Bytes are those of a message with room for all of a client's newest items and their pairs.

    With several epochs the newest items of a client come one after the other, in epochs drawn by `seed`. An
    item or a pair is reported when its newer item is there, and a threshold holds in every epoch.
    """
    chosen = {"neighbours": 100, "least_clients": 1} | dict(options or {})
    method = find(name, chosen)
    if not isinstance(method, ClosedForm) or not method.neighbours:
        raise ConfigError(f"{name!r} has no threshold with these options", "use fedease or fedslist")
    parts = split(data, "strict")
    evaluator = Evaluator(parts, seed=seed, validated=None if users else VALIDATED)
    if users:
        drawn = np.random.default_rng(seed).permutation(parts.data.n_users)
        evaluator.restrict(drawn[:users])
    clients = ClientData(parts.train, parts.excluded, data.n_items)
    server = OneRound(method, clients, device=torch.device("cpu"), dtype=torch.float32)
    on_size("adding up")
    totals = SparseSum(method, data.n_items)
    for client in np.flatnonzero(parts.train.lengths):
        totals.add(contribution_of(method, parts.train, int(client)))
    counts = {key: total.take() for key, total in totals.totals.items()}
    if epochs > 1 and set(counts) != {"gram"}:
        raise ConfigError(f"{name!r} has no pairs that are the same in every epoch", "use fedease")
    newest = int(getattr(method.config, "newest", 0)) or int(parts.train.lengths.max())
    lengths = np.minimum(parts.train.lengths, newest)
    found = []
    for least in thresholds:
        best: dict[str, Any] = {}
        known = counts if epochs == 1 else {"gram": _by_epochs(parts, newest, epochs, least, seed)}
        for reg in regs:
            on_size(f"T = {least}, {_REG[name]} = {_reg(name, reg)}")
            settings = chosen | {"least_clients": least, _REG[name]: _reg(name, reg)}
            tried = find(name, settings)
            assert isinstance(tried, ClosedForm)
            ids, weights = tried.aggregate.solve_sparse(known)
            server.restore({NEIGHBOURS: ids, WEIGHTS: weights.float()}, {})
            validation = evaluator.validation(server.serve(history(parts, "validation"))).full["ndcg@10"]
            if best and validation <= best["validation"]:
                continue
            best = {"reg": _reg(name, reg), "validation": validation, "shared": server.state.shared}
        server.restore(best.pop("shared"), {})
        figures = evaluator.test(server.serve(history(parts, "test"))).full
        pairs = sum(int((each.values >= least).sum()) for each in known.values())
        reports = newest * (newest + 1) // 2
        sizes = {
            "reports": reports,
            "bytes": reports * SEALED_BYTES,
            "own": float((lengths * (lengths + 1) / 2).mean()),
        }
        found.append({"least_clients": least, "pairs": pairs, **sizes, **best, **figures})
    return found


_REG = {"fedease": "reg", "fedslist": "ridge"}


def _by_epochs(parts: Split, newest: int, epochs: int, least: int, seed: int) -> Rows:
    """The sum over epochs of pairs that at least so many clients report in the same one."""
    draw, n_items, histories = np.random.default_rng(seed), parts.data.n_items, parts.train
    total = SparseTotal(n_items, n_items, np.float32)
    keys = []
    for client in np.flatnonzero(histories.lengths):
        items = histories.row(int(client))[-newest:].astype(np.int64)
        came = np.sort(draw.integers(epochs, size=len(items)))
        older, newer = np.triu_indices(len(items))
        low, high = np.minimum(items[older], items[newer]), np.maximum(items[older], items[newer])
        keys.append((came[newer] * n_items + low) * n_items + high)
    found, devices = np.unique(np.concatenate(keys), return_counts=True)
    pairs = found[devices >= least] % n_items**2
    total.add(*np.divmod(pairs, n_items), devices[devices >= least].astype(np.float32))
    return total.take()


def _reg(name: str, reg: float) -> float:
    """A ridge is in units of the mean diagonal."""
    return reg if name == "fedease" else reg / 100
