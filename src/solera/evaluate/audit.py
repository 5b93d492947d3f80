"""Audit of a data set under a protocol: leaks and other problems, found before any training."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from solera.data.interactions import Interactions, Split
from solera.data.ragged import Ragged
from solera.evaluate.protocols import get, split
from solera.evaluate.ranking import N_NEGATIVES, Evaluator

SEED = 0  # for the sampled negatives that popularity is ranked against
EASY = 0.8  # popularity's sampled HR@10 above which a data set hardly separates methods


def audit(data: Interactions, protocol: str, *, unfiltered: Interactions | None = None) -> dict[str, Any]:
    """Count the properties that make results on this data set look better, or mean less, than they seem to.

    All values are plain JSON. Shares are of the evaluated users, except `latest_time_ties`, which is of
    all users. `test_in_train`: a test item is among the user's own training items. `test_never_negative`:
    it is not, but can never be drawn as one of the user's training negatives. The effect of a filter is
    null unless the `unfiltered` data set is given too.
    """
    parts = split(data, protocol)
    evaluated = parts.test.lengths > 0
    in_train = _member(parts.test, parts.train, data.n_items)
    never_negative = _member(parts.test, parts.excluded, data.n_items) & ~in_train
    distinct = data.distinct()
    used = sum(len(part.values) for part in (parts.train, parts.validation, parts.test))
    rows, _ = get(protocol).label(data)
    facts: dict[str, Any] = {
        "dataset": data.name,
        "protocol": protocol,
        "leaky": parts.leaky,
        "rows": len(data),
        "distinct_pairs": len(distinct),
        "duplicate_rows": len(data) - len(distinct),
        "users": data.n_users,
        "items": data.n_items,
        "has_time": data.times is not None,
        "latest_time_ties": _latest_time_ties(rows),
        "test_in_train": _share(parts.test, in_train),
        "test_never_negative": _share(parts.test, never_negative),
        "users_not_evaluated": int((~evaluated).sum()),
        "held_out_dropped": len(rows) - used,
        "users_lost_to_filter": None if unfiltered is None else unfiltered.n_users - data.n_users,
        "items_lost_to_filter": None if unfiltered is None else unfiltered.n_items - data.n_items,
        "popularity": _popularity(parts),
    }
    return facts | {"verdict": _verdict(facts)}


def _member(parts: Ragged, of: Ragged, n_items: int) -> NDArray[np.bool_]:
    """Mask of the values of `parts` that are in the same row of `of`."""
    return np.isin(parts.rows * n_items + parts.values, of.rows * n_items + of.values)


def _share(parts: Ragged, marked: NDArray[np.bool_]) -> float:
    """The share of the non-empty rows of `parts` that contain a marked value."""
    return len(np.unique(parts.rows[marked])) / int((parts.lengths > 0).sum())


def _latest_time_ties(rows: Interactions) -> dict[str, float] | None:
    if rows.times is None:
        return None
    last = rows.by_user.offsets[1:][rows.by_user.lengths > 1] - 1
    tied = int((rows.times[last] == rows.times[last - 1]).sum())
    return {"users": tied, "share": tied / rows.n_users}


def _popularity(parts: Split) -> dict[str, dict[str, float]]:
    counts = np.bincount(parts.train.sorted_unique().values, minlength=parts.data.n_items)
    scores = torch.from_numpy(counts.astype(np.float32))
    evaluation = Evaluator(parts, SEED).test(lambda users: scores.expand(len(users), -1))
    return {"full": evaluation.full, "sampled99": evaluation.sampled99}


def _verdict(facts: dict[str, Any]) -> list[str]:
    """The important findings, as sentences."""
    full, sampled = (facts["popularity"][kind]["hr@10"] for kind in ("full", "sampled99"))
    tied = facts["latest_time_ties"]["users"] if facts["has_time"] else 0
    said = [
        (
            facts["leaky"],
            "The protocol is leaky: compare its figures with published ones made the same way only.",
        ),
        (
            facts["test_never_negative"] > 0,
            f"{_percent(facts['test_never_negative'])} of the users have a test item that can never be "
            "drawn as a training negative: a model that pushes down every item it is shown finds it without "
            "having learned anything.",
        ),
        (
            facts["test_in_train"] > 0,
            f"{_percent(facts['test_in_train'])} of the test items are already among the same user's "
            "training items: remembering the history is enough to find them.",
        ),
        (
            facts["duplicate_rows"] > 0,
            f"{facts['duplicate_rows']:,} of the {facts['rows']:,} rows repeat an earlier pair of user and "
            "item.",
        ),
        (
            not facts["has_time"],
            "There are no times: the order of the file stands in for them, so the last may not be latest.",
        ),
        (
            tied > 0 and facts["protocol"] != "global-time",
            f"{tied:,} users have a tie at their latest time: the tie rule, not time, decides what is held "
            "out for them.",
        ),
        (
            facts["users_not_evaluated"] > 0,
            f"{facts['users_not_evaluated']:,} of {facts['users']:,} users are not evaluated: nothing of "
            "theirs can be held out.",
        ),
        (
            facts["held_out_dropped"] > 0,
            f"{facts['held_out_dropped']:,} held-out interactions are dropped: their user or item does not "
            "occur in training.",
        ),
        (
            bool(facts["users_lost_to_filter"] or facts["items_lost_to_filter"]),
            f"The filter left out {facts['users_lost_to_filter']} users and "
            f"{facts['items_lost_to_filter']} items.",
        ),
        (
            True,
            f"Popularity alone reaches HR@10 {full:.3f} in full ranking and {sampled:.3f} against "
            f"{N_NEGATIVES} sampled items; a method has to beat that.",
        ),
        (
            sampled >= EASY,
            "Popularity is so strong here that the sampled figures hardly tell methods apart.",
        ),
    ]
    return [sentence for holds, sentence in said if holds]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.2f} %"
