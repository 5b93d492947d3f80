"""Protocols: which interactions are for training, which are held out, and what may be a training negative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from solera.core.errors import ConfigError, DataError, closest
from solera.core.types import Ints
from solera.data.interactions import Interactions, Split
from solera.data.ragged import Ragged

TRAIN, VALIDATION, TEST, DROPPED = range(4)
LEAST = 3  # leave-last-out needs one item for each of train, validation and test
GLOBAL_CUTS = (0.8, 0.9)  # quantiles of time at which validation and test begin

COLD_SHARE, COLD_SEED = 0.1, 0  # of the items that the protocol cold-items keeps out of training

# The rows that a protocol uses, oldest first within a user, and the part of each row.
Labelled = tuple[Interactions, Ints]


@dataclass(frozen=True)
class Protocol:
    """A protocol's name, whether it leaks, and the validation metric that selects a round."""

    name: str
    leaky: bool
    summary: str
    select_on: Literal["full", "sampled99"]
    select_metric: str
    label: Callable[[Interactions], Labelled] = field(repr=False)


def split(data: Interactions, protocol: str) -> Split:
    """Split a data set under the given protocol.

    An honest protocol excludes only a user's training items from the negatives. A leaky one also excludes the
    held-out items, which tells the model which of the unseen items are the answers.
    """
    chosen = get(protocol)
    rows, part = chosen.label(data)
    train, validation, test = (_part(rows, part == which) for which in (TRAIN, VALIDATION, TEST))
    if not len(validation.values) or not len(test.values):
        raise DataError(
            f"no user of {data.name!r} has a held-out item under protocol {chosen.name!r}",
            f"{chosen.name} means: {chosen.summary}; choose another protocol or a larger data set",
        )
    excluded = train.concat(validation).concat(test) if chosen.leaky else train
    return Split(data, chosen.name, chosen.leaky, train, validation, test, excluded.sorted_unique())


def get(name: str) -> Protocol:
    """The protocol with this name. An unknown name raises an error that suggests the closest one."""
    if name not in PROTOCOLS:
        raise ConfigError(f"unknown protocol {name!r}", closest(name, list(PROTOCOLS)))
    return PROTOCOLS[name]


def _strict(data: Interactions) -> Labelled:
    _require_rows(data)
    rows = data.distinct()
    return rows, _last_two(rows)


def _paper(data: Interactions) -> Labelled:
    _require_rows(data)
    # Without times, the public code (FedRAP's and FedEM's) takes an item's first appearance in the file as
    # the time of all its rows. A user's last item is then the one that appeared latest, often a rare one.
    times = data.times
    if times is None:
        assert data.first_seen is not None
        times = data.first_seen[data.items]
    # It ranks times in descending order by first appearance: among equal times, the row that comes earlier
    # in the file counts as the later one.
    order = np.lexsort((-np.arange(len(data)), times, data.users))
    rows = data.select(order)
    return rows, _last_two(rows)


def _global_time(data: Interactions) -> Labelled:
    if data.times is None or not data.one_clock:
        lacks = "no times" if data.times is None else "only the order of each user's rows"
        raise DataError(
            f"{data.name!r} has {lacks}, so it cannot be split at one point in time for all users",
            "use --protocol strict, which needs only the order of each user's rows",
        )
    rows = data.distinct()
    assert rows.times is not None
    cuts = np.quantile(rows.times, GLOBAL_CUTS, method="higher")
    part = np.searchsorted(cuts, rows.times, side="right").astype(np.int64)
    trains = part == TRAIN
    known_user = np.bincount(rows.users[trains], minlength=rows.n_users) > 0
    known_item = np.bincount(rows.items[trains], minlength=rows.n_items) > 0
    # Items that nobody has met yet and users without a past cannot be evaluated.
    part[~(known_user[rows.users] & known_item[rows.items])] = DROPPED
    return rows, part


def _cold_items(data: Interactions) -> Labelled:
    rows, part = _strict(data)
    # The same items in every run: seeds change training, never what is held out.
    order = np.random.default_rng(COLD_SEED).permutation(data.n_items)
    cold = np.zeros(data.n_items, dtype=np.bool_)
    cold[order[: round(COLD_SHARE * data.n_items)]] = True
    is_cold = cold[rows.items]
    part[(part == TRAIN) & is_cold] = DROPPED
    part[(part == TEST) & ~is_cold] = DROPPED
    part[(part == VALIDATION) & ~is_cold] = TRAIN  # older than the test item, so the device knows it
    # Nothing can be asked of users who have no other items.
    knows = np.bincount(rows.users[part == TRAIN], minlength=rows.n_users) > 0
    part[~knows[rows.users]] = DROPPED
    return rows, part


def _last_two(rows: Interactions) -> Ints:
    """Leave-last-out: the last row of a user is for test, the one before for validation.

    Users with fewer than three rows (after de-duplication) are used for training and are not evaluated.
    """
    ends, lengths = rows.by_user.offsets[1:], rows.by_user.lengths
    last = ends[lengths >= LEAST] - 1
    part = np.full(len(rows), TRAIN, dtype=np.int64)
    part[last] = TEST
    part[last - 1] = VALIDATION
    return part


def _require_rows(data: Interactions) -> None:
    counts = data.by_user.lengths
    few = np.flatnonzero(counts < LEAST)
    if len(few):
        raise DataError(
            f"user {data.user_map.id(few[0])!r} of {data.name!r} has {counts[few[0]]} interactions, "
            f"leave-last-out needs {LEAST} ({len(few)} such users)",
            f"raise --min-interactions to {LEAST} or more, which leaves these users out",
        )


def _part(rows: Interactions, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ragged:
    days = None if rows.days is None else rows.days[chosen]
    return Ragged.from_pairs(rows.users[chosen], rows.items[chosen], rows.n_users, days)


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "strict",
            leaky=False,
            summary="the last new item of every user is test, the one before validation; nothing leaks",
            select_on="full",
            select_metric="ndcg@10",
            label=_strict,
        ),
        Protocol(
            "paper",
            leaky=True,
            summary="as the papers' public code: held-out items are never drawn as negatives, so they leak",
            select_on="sampled99",
            select_metric="hr@10",
            label=_paper,
        ),
        Protocol(
            "global-time",
            leaky=False,
            summary="one cut in time for everybody: the last tenth is test, the tenth before validation",
            select_on="full",
            select_metric="ndcg@10",
            label=_global_time,
        ),
        Protocol(
            "cold-items",
            leaky=False,
            summary="as strict, but a tenth of the items is in no training row, and only those are held out",
            select_on="full",
            select_metric="ndcg@10",
            label=_cold_items,
        ),
    )
}
