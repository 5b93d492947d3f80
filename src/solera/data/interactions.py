"""User–item interactions with times: the data type that all other packages read. And their split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from solera.core.errors import DataError
from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged


class IdMap:
    """A two-way mapping between the publisher's ids and dense indices."""

    def __init__(self, ids: Sequence[str] | NDArray[np.str_]) -> None:
        self.ids: NDArray[np.str_] = np.asarray(ids, dtype=np.str_)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._index

    @cached_property
    def _index(self) -> dict[str, int]:
        return {id_: index for index, id_ in enumerate(self.ids.tolist())}

    def id(self, index: int) -> str:
        """The publisher's id at an index."""
        return str(self.ids[index])

    def index(self, id_: str, kind: str = "id") -> int:
        """The index of a publisher's id. An unknown id raises an error that names `kind`."""
        try:
            return self._index[id_]
        except KeyError:
            some = ", ".join(self.ids[:3].tolist())
            raise DataError(f"unknown {kind} {id_!r}", f"ids look like: {some}") from None

    def take(self, indices: Ints) -> IdMap:
        """The ids at the given indices, renumbered from 0."""
        return IdMap(self.ids[indices])


class Origin(NamedTuple):
    """Where interactions come from, with everything needed to load them again."""

    dataset: str  # a name, or a file path
    columns: dict[str, str] | None = None
    min_interactions: int | None = None


@dataclass(frozen=True, eq=False)
class Interactions:
    """Interactions sorted by user, then time; equal times keep the order of the file.

    `times` is None if the publisher gives none: the order of the file is used instead. Times may be ranks
    within a user; `one_clock` says whether times of different users can be compared. `first_seen` is the line
    in which each item appears first, if there are no times. `origin` is None for a table in memory, which
    cannot be loaded again. `attributes` are the numbers of every item's attributes, such as genres and
    brands, sorted, if they are known.
    """

    name: str
    users: Ints
    items: Ints
    times: Ints | None
    user_map: IdMap
    item_map: IdMap
    titles: tuple[str, ...] | None = None
    one_clock: bool = True
    first_seen: Ints | None = None
    origin: Origin | None = None
    attributes: Ragged | None = None

    @classmethod
    def from_columns(
        cls,
        name: str,
        users: Sequence[str] | NDArray[np.str_] | pl.Series,
        items: Sequence[str] | NDArray[np.str_] | pl.Series,
        times: Ints | None = None,
        titles: dict[str, str] | None = None,
    ) -> Interactions:
        """Build from columns: number the ids in natural order (numbers as numbers) and sort the rows."""
        if not len(users):
            raise DataError(f"data set {name!r} has no interactions", "check the file and its columns")
        user_map, user_index = _number(users)
        item_map, item_index = _number(items)
        first_seen = _first_seen(item_index, len(item_map)) if times is None else None
        order = _order(user_index, times)
        if order is not None:
            user_index, item_index = user_index[order], item_index[order]
            times = None if times is None else times[order]
        return cls(
            name=name,
            users=user_index,
            items=item_index,
            times=None if times is None else times.astype(np.int64, copy=False),
            user_map=user_map,
            item_map=item_map,
            titles=None if titles is None else tuple(titles.get(i, "") for i in item_map.ids.tolist()),
            first_seen=first_seen,
        )

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        """A short description with the size."""
        return (
            f"<{self.name}: {self.n_users:,} users, {self.n_items:,} items, {len(self):,} interactions"
            f"{', with times' if self.times is not None else ''}>"
        )

    def frame(self) -> pl.DataFrame:
        """A data frame with one row per interaction: user, item, and time and title if known."""
        columns = {"user": self.user_map.ids[self.users], "item": self.item_map.ids[self.items]}
        frame = pl.DataFrame(columns)
        if self.times is not None:
            frame = frame.with_columns(pl.Series("time", self.times))
        if self.titles is not None:
            frame = frame.with_columns(pl.Series("title", np.array(self.titles, dtype=object)[self.items]))
        return frame

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_map)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_map)

    @cached_property
    def by_user(self) -> Ragged:
        """Every user's items, oldest first."""
        return Ragged.of_lengths(np.bincount(self.users, minlength=self.n_users), self.items)

    @cached_property
    def days(self) -> Floats | None:
        """The day of every row, counted from 1970 with fractions; None if times are no dates."""
        unit = None if self.times is None or not self.one_clock else time_unit(self.times)
        if unit is None or self.times is None:
            return None
        return np.asarray(self.times / (timedelta(days=1) / unit), dtype=np.float64)

    @property
    def timed_by_user(self) -> Ragged:
        """Every user's items with their days, if times are dates."""
        return replace(self.by_user, days=self.days)

    def with_attributes(self, named: Mapping[str, Iterable[object]]) -> Interactions:
        """The same interactions with the attributes of items, given by item id."""
        known = [sorted({str(each) for each in named.get(id_, ())}) for id_ in self.item_map.ids.tolist()]
        numbers = {name: number for number, name in enumerate(sorted({n for names in known for n in names}))}
        lists = [[numbers[name] for name in names] for names in known]
        return replace(self, attributes=Ragged.from_lists(lists))

    def title(self, item: int) -> str:
        """The item's title, or its id if no title is known."""
        return (self.titles[item] if self.titles else "") or self.item_map.id(item)

    def select(self, keep: NDArray[np.bool_] | Ints) -> Interactions:
        """A subset of the rows, with the id maps unchanged."""
        times = None if self.times is None else self.times[keep]
        return replace(self, users=self.users[keep], items=self.items[keep], times=times)

    def distinct(self) -> Interactions:
        """Only the first interaction of every (user, item) pair."""
        first = _first_of_pairs(self.users, self.items, self.n_items)
        return self if first.all() else self.select(first)

    def with_rows_of(self, newer: Interactions) -> Interactions:
        """These interactions and newer ones. Users and items keep their numbers; new ones come after them."""
        if (self.times is None) != (newer.times is None):
            raise DataError("only one of the two tables has times", "give both a time column, or neither")
        (users, user_map), (items, item_map) = (
            _continued(newer.users, self.user_map, newer.user_map),
            _continued(newer.items, self.item_map, newer.item_map),
        )
        whole_users, whole_items = np.concatenate([self.users, users]), np.concatenate([self.items, items])
        times = None
        if self.times is not None and newer.times is not None:
            times = np.concatenate([self.times, newer.times])
        order = _order(whole_users, times)
        if order is None:
            order = np.arange(len(whole_users))
        more = len(item_map) - self.n_items
        titles = self.titles
        if titles is not None or newer.titles is not None:
            named = {str(newer.item_map.id(i)): newer.title(i) for i in range(newer.n_items)}
            known = titles or ("",) * self.n_items
            titles = (*known, *(named[id_] for id_ in item_map.ids[self.n_items :].tolist()))
        return replace(
            self,
            users=whole_users[order],
            items=whole_items[order],
            times=None if times is None else times[order],
            user_map=user_map,
            item_map=item_map,
            titles=titles,
            one_clock=self.one_clock and newer.one_clock,
            first_seen=None if times is not None else _first_seen(whole_items, len(item_map)),
            origin=None,
            attributes=None
            if self.attributes is None
            else Ragged.of_lengths(
                np.concatenate([self.attributes.lengths, np.zeros(more, np.int64)]), self.attributes.values
            ),
        )

    def min_interactions(self, least: int) -> Interactions:
        """The data without users who have fewer than `least` rows, and without items that nobody has left."""
        counts = np.bincount(self.users, minlength=self.n_users)
        if counts.min() >= least:
            return self
        kept = self.select((counts >= least)[self.users])
        if not len(kept):
            raise DataError(
                f"no user of {self.name!r} has {least} or more interactions (the most is {counts.max()})",
                f"lower --min-interactions to {counts.max()} or less",
            )
        return kept.renumbered()

    def core(self, least: int) -> Interactions:
        """The largest part of the data in which every user and every item has `least` rows or more."""
        kept = self
        while True:
            users = np.bincount(kept.users, minlength=self.n_users)
            items = np.bincount(kept.items, minlength=self.n_items)
            stays = (users[kept.users] >= least) & (items[kept.items] >= least)
            if stays.all():
                break
            kept = kept.select(stays)
        if not len(kept):
            raise DataError(
                f"no users and items of {self.name!r} have {least} or more interactions with each other",
                "use a lower number",
            )
        return kept.renumbered()

    def renumbered(self) -> Interactions:
        """The same interactions without users and items that have none, numbered from 0."""
        users, user_index = _renumber(self.users, self.n_users)
        items, item_index = _renumber(self.items, self.n_items)
        titles = None if self.titles is None else tuple(self.titles[i] for i in items.tolist())
        return replace(
            self,
            users=user_index,
            items=item_index,
            user_map=self.user_map.take(users),
            item_map=self.item_map.take(items),
            titles=titles,
            first_seen=None if self.first_seen is None else self.first_seen[items],
            attributes=None if self.attributes is None else self.attributes.take(items),
        )


def time_unit(times: Ints) -> timedelta | None:
    """The unit of times since 1970: seconds or milliseconds. None if they are no dates."""
    # Ranks and basket numbers are far too small for a date after 1990, as are seconds read as milliseconds.
    for unit in (timedelta(seconds=1), timedelta(milliseconds=1)):
        low, high = (timedelta(days=365.25 * years) // unit for years in (20, 130))
        if low <= times.max() < high:
            return unit
    return None


def _first_seen(items: Ints, n_items: int) -> Ints:
    """The first place of every item in a column of items."""
    first = np.zeros(n_items, dtype=np.int64)
    first[items[::-1]] = np.arange(len(items))[::-1]  # of several assignments, the last one holds
    return first


def _number(ids: Sequence[str] | NDArray[np.str_] | pl.Series) -> tuple[IdMap, Ints]:
    """Map ids to dense indices. Ids that are all integers are ordered as numbers."""
    if isinstance(ids, pl.Series) and ids.dtype.is_integer():
        distinct, index = _renumber_values(ids.to_numpy())
        return IdMap(distinct.astype(np.str_)), index
    text = pl.Series(ids, dtype=pl.String)
    known = text.unique().to_list()
    numeric = all(id_.isascii() and id_.isdigit() for id_ in known)
    ordered = sorted(known, key=_as_number if numeric else None)
    return IdMap(ordered), text.cast(pl.Enum(ordered)).to_physical().to_numpy().astype(np.int32)


def _continued(indices: Ints, known: IdMap, others: IdMap) -> tuple[Ints, IdMap]:
    """Indices into `others` as those of the known ids, followed by the ids that are new."""
    numbers = dict(zip(known.ids.tolist(), range(len(known)), strict=True))
    new = [id_ for id_ in others.ids.tolist() if id_ not in numbers]
    numbers |= zip(new, range(len(known), len(known) + len(new)), strict=True)
    places = np.array([numbers[id_] for id_ in others.ids.tolist()], dtype=indices.dtype)
    return places[indices], IdMap(known.ids.tolist() + new)


def _renumber(indices: Ints, size: int) -> tuple[Ints, Ints]:
    """The indices below `size` that occur, and each index as its place among them."""
    seen = np.zeros(size, dtype=np.bool_)
    seen[indices] = True
    return np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int32) - np.int32(1))[indices]


def _renumber_values(values: Ints) -> tuple[Ints, Ints]:
    """The same of any integers."""
    low, high = int(values.min()), int(values.max())
    if high - low < 4 * len(values) + 1000:  # dense: faster than sorting
        found, index = _renumber(values - low, high - low + 1)
        return found + low, index
    found, index = np.unique(values, return_inverse=True)
    return found, index.astype(np.int32)


def _order(users: Ints, times: Ints | None) -> Ints | None:
    """The order by user, then time, then place in the file; None if the rows have it already."""
    later = users[1:] > users[:-1]
    same = users[1:] == users[:-1]
    if (later | same if times is None else later | (same & (times[1:] >= times[:-1]))).all():
        return None
    if times is None:
        return np.argsort(users, kind="stable")
    first = times.min()
    bits = int(times.max() - first).bit_length()
    if int(users.max()).bit_length() + bits > 63:
        return np.lexsort((times, users))
    # One number for both is sorted in half the time.
    return np.argsort(users.astype(np.int64) << bits | (times - first), kind="stable")


def _first_of_pairs(users: Ints, items: Ints, n_items: int) -> NDArray[np.bool_]:
    """Which rows are the first of their (user, item) pair. Rows are sorted by user."""
    key = users.astype(np.int64) * n_items + items
    ordered = np.sort(key)  # several times as fast as argsort
    if (ordered[1:] != ordered[:-1]).all():
        return np.ones(len(key), dtype=np.bool_)
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.ones(len(key), dtype=np.bool_)
    first[order[1:]] = key[1:] != key[:-1]
    return first


def _as_number(digits: str) -> tuple[int, str, str]:
    """Sort key that orders digit strings by value without an upper bound. "1" and "01" stay two ids."""
    significant = digits.lstrip("0")
    return len(significant), significant, digits


Part = Literal["validation", "test"]


@dataclass(frozen=True, eq=False)
class Split:
    """One data set split by one protocol. Every `Ragged` has one row per user of `data`.

    `excluded` are the items that are never drawn as a user's training negatives, sorted. Under an
    honest protocol these are only the training items; a held-out item among them is the papers' leak.
    """

    data: Interactions
    protocol: str
    leaky: bool
    train: Ragged  # oldest first
    validation: Ragged
    test: Ragged
    excluded: Ragged


def history(split: Split, part: Part, users: Ints | None = None) -> Ragged:
    """The items a device knows when `part` is evaluated: training items, for the test also validation.

    Every user has a row, or every one of `users`.
    """
    train, validation = (
        rows if users is None else rows.take(users) for rows in (split.train, split.validation)
    )
    return train if part == "validation" else train.concat(validation)


def when_asked(split: Split) -> Ragged:
    """The histories of the test, with the day of every user's first test item as that of the request."""
    known, test = history(split, "test"), split.test
    if known.days is None or test.days is None:
        return known
    asked = np.zeros(len(test))
    some = test.lengths > 0
    asked[some] = test.days[test.offsets[:-1][some]]
    return replace(known, asked=asked)


def with_validation(split: Split) -> Split:
    """The split whose training items also have the validation items, newest last."""
    train, excluded = history(split, "test"), split.excluded.concat(split.validation).sorted_unique()
    return replace(split, train=train, excluded=excluded)
