"""Load a data set by its name, or your own file by its path."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from solera.core.errors import DataError, closest
from solera.core.types import Ints
from solera.data.files import (
    ENVIRONMENT,
    Place,
    cache_dir,
    converted,
    download,
    files_of,
    find,
    has_files,
    user_dirs,
)
from solera.data.interactions import Interactions, Origin, time_unit
from solera.data.readers import SUFFIXES, Genres, Ids, Rows, is_frame, read_frame, read_own
from solera.data.registry import LEAST, DataSet, Form, is_registered, known_datasets
from solera.data.table import LARGE

_FORM = re.compile(r"(?P<of>users|items)=(?P<first>[1-9]\d*)-(?P<last>[1-9]\d*)")
_EXAMPLE = "write ml-1m@users=1-500 or ml-1m@items=1-1000"


class Subset(NamedTuple):
    """The users or items from one rank to another, both included; the first rank is 1.

    ml-1m@users=1-500 is what the 500 most active users of ml-1m did. Users are ranked by their number of
    interactions, and items by how many they are in. Of equals, the one with the smaller number in the data
    set comes first. The others are left out, and the rest is renumbered.
    """

    of: str
    first: int
    last: int

    def take(self, data: Interactions) -> Interactions:
        """The interactions of these users, or with these items."""
        column, size = (data.users, data.n_users) if self.of == "users" else (data.items, data.n_items)
        if self.last > size:
            raise DataError(f"{data.name!r} has {size:,} {self.of}, not {self.last:,}", _EXAMPLE)
        ranked = np.argsort(-np.bincount(column, minlength=size), kind="stable")
        chosen = np.zeros(size, dtype=np.bool_)
        chosen[ranked[self.first - 1 : self.last]] = True
        return data.select(chosen[column]).renumbered()


def subset_of(name: str) -> tuple[str, Subset | None]:
    """The data set of a name, and the part of it that the name asks for, if any."""
    base, at, text = name.partition("@")
    if not at:
        return name, None
    found = _FORM.fullmatch(text)
    if found is None or int(found["first"]) > int(found["last"]):
        raise DataError(f"{text!r} is not a part of a data set", _EXAMPLE)
    return base, Subset(found["of"], int(found["first"]), int(found["last"]))


def names() -> list[str]:
    """Names of the data sets that can be loaded by name."""
    return list(known_datasets())


def info(name: str) -> DataSet:
    """The registry entry of a data set."""
    try:
        return known_datasets()[name]
    except KeyError:
        hint = closest(name, names())
        raise DataError(f"unknown data set {name!r}", f"{hint} (your own file: {_kinds()})") from None


def available(name: str, data_dir: Path | None = None) -> Place:
    """Where a data set would be loaded from at present."""
    entry = info(subset_of(name)[0])
    return find(entry.home, [form.files for form in entry.forms], entry.archive is not None, data_dir)


def load(
    source: str | Path | Any,
    *,
    data_dir: str | Path | None = None,
    min_interactions: int | None = None,
    columns: dict[str, str] | None = None,
    name: str | None = None,
) -> Interactions:
    """Load a data set by name, from a file, a pandas, polars or Arrow table, or RecTools or LensKit.

    A name is looked up in `data_dir`, then in the folder given by SOLERA_DATA, as `<folder>/<name>/`, then in
    the cache; otherwise it is downloaded. Users with fewer than `min_interactions` rows are left out: None
    uses the papers' own number for the data set, 0 keeps everybody. `columns` names the columns of your own
    file or table, as in {"user": "who", "item": "what"}. `name` is the name of a table in results ("table").
    A name may ask for a part of a data set, as in ml-1m@users=1-500 (see `Subset`).
    """
    if not isinstance(source, str | Path):
        least = LEAST if min_interactions is None else min_interactions
        return _load_frame(source, columns, name or "table").min_interactions(least)
    given = str(source)
    if given not in known_datasets() and _looks_like_path(given):
        data = _load_own(Path(given), columns, LEAST if min_interactions is None else min_interactions)
        given = str(Path(given).resolve())
    else:
        base, subset = subset_of(given)
        entry = info(base)
        if columns:
            raise DataError(f"the columns of {given!r} are already known", "omit columns")
        least = entry.min_interactions if min_interactions is None else min_interactions
        data = _load_named(entry, None if data_dir is None else Path(data_dir), least)
        if subset:
            data = replace(subset.take(data), name=given).min_interactions(least)
    return replace(data, origin=Origin(given, columns, min_interactions))


def _load_frame(source: Any, columns: dict[str, str] | None, name: str) -> Interactions:
    if hasattr(source, "get_raw_interactions"):  # a data set of RecTools
        source = source.get_raw_interactions()
    elif hasattr(source, "interaction_table"):  # one of LensKit
        source = source.interaction_table(format="pandas", original_ids=True)
    if not is_frame(source):
        raise DataError(
            f"{type(source).__name__} cannot be loaded as a data set",
            f"give a name ({', '.join(names()[:3])}, …), {_kinds()}, a pandas, polars or Arrow table, or a "
            "data set of RecTools or LensKit",
        )
    rows = read_frame(source, columns)
    return Interactions.from_columns(name, rows.users, rows.items, rows.times, rows.titles)


def genres(source: str, data_dir: str | Path | None = None) -> Genres:
    """The genres of a data set's items by id; empty if its files give none."""
    if _looks_like_path(source) and source not in known_datasets():
        return {}
    folder, form = _locate(info(subset_of(source)[0]), None if data_dir is None else Path(data_dir))
    known = form.attributes
    if not known or not known.genres or not (folder / known.file).is_file():
        return {}
    return known.read(folder / known.file)


def ids_elsewhere(source: str, data: Interactions, data_dir: str | Path | None = None) -> Ids:
    """The ids that a data set's items have elsewhere, by id and kind; empty if its files give none."""
    if _looks_like_path(source) and source not in known_datasets():
        return {}
    folder, form = _locate(info(subset_of(source)[0]), None if data_dir is None else Path(data_dir))
    if form.id_kind:
        return {id_: {form.id_kind: id_} for id_ in data.item_map.ids.tolist()}
    if not form.links or not (folder / form.links.file).is_file():
        return {}
    return form.links.read(folder / form.links.file)


def stats(data: Interactions) -> dict[str, Any]:
    """Statistics of a data set, as plain JSON types."""
    per_user = data.by_user.lengths
    pairs = len(data.distinct())
    first, last = _span(data.times)
    return {
        "rows": len(data),
        "distinct_pairs": pairs,
        "users": data.n_users,
        "items": data.n_items,
        "density": pairs / (data.n_users * data.n_items),
        "rows_per_user": {
            "min": int(per_user.min()),
            "median": float(np.median(per_user)),
            "mean": float(per_user.mean()),
            "max": int(per_user.max()),
        },
        "has_time": data.times is not None,
        "first_time": first,
        "last_time": last,
    }


def _load_named(entry: DataSet, data_dir: Path | None, least: int) -> Interactions:
    folder, form = _locate(entry, data_dir)
    files = [path for file in form.files for path in files_of(folder, file)]
    titled = folder / form.titles.file if form.titles else None
    titles = titled if titled and titled.is_file() else None

    def read() -> Interactions:
        rows = form.read(files)
        if not isinstance(rows, Rows):
            rows = read_frame(rows)
        known = form.titles.read(titles) if form.titles and titles else rows.titles
        data = Interactions.from_columns(entry.name, rows.users, rows.items, rows.times, known)
        data = replace(data, one_clock=form.one_clock)
        return (data.core(entry.core) if entry.core else data).min_interactions(least)

    how: dict[str, object] = {
        "name": entry.name,
        "files": form.files,
        "titles": titles and titles.name,
        "least": least,
    }
    if entry.core:
        how["core"] = entry.core
    data = read() if is_registered(entry) else converted([*files, *([titles] if titles else [])], how, read)
    described = folder / form.attributes.file if form.attributes else None
    if form.attributes and described and described.is_file():
        data = data.with_attributes(form.attributes.read(described))
    return data


def _load_own(path: Path, columns: dict[str, str] | None, least: int) -> Interactions:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"the file {path} {what}", f"give {_kinds()}, or a data set: {', '.join(names())}")

    def read() -> Interactions:
        rows = read_own(path, columns)
        data = Interactions.from_columns(path.stem, rows.users, rows.items, rows.times, rows.titles)
        return data.min_interactions(least)

    if path.stat().st_size < LARGE:  # as fast as the cache, and no copy of somebody's file lies about
        return read()
    return converted([path], {"name": path.name, "columns": columns, "least": least}, read)


def _looks_like_path(name: str) -> bool:
    path = Path(name)
    return len(path.parts) > 1 or path.suffix in SUFFIXES or path.exists()


def _kinds() -> str:
    return f"a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file"


def _locate(entry: DataSet, data_dir: Path | None) -> tuple[Path, Form]:
    cached = cache_dir() / entry.home
    for folder in [*(root / entry.home for root in user_dirs(data_dir)), cached]:
        form = _form_in(folder, entry)
        if form:
            return folder, form
    if not entry.archive:
        raise DataError(
            f"data set {entry.name!r} is not on this machine and has to be downloaded by hand",
            _by_hand(entry),
        )
    download(entry.home, entry.archive, _wanted(entry))
    form = _form_in(cached, entry)
    if not form:
        raise DataError(f"{entry.archive.url} does not contain the files of {entry.name!r}", _by_hand(entry))
    return cached, form


def _form_in(folder: Path, entry: DataSet) -> Form | None:
    """The first form whose files are all in the folder."""
    return next((form for form in entry.forms if has_files(folder, form.files)), None)


def _wanted(entry: DataSet) -> list[str]:
    """The files to extract from an archive. Titles come first, so that a complete set has its titles."""
    more = [each.file for form in entry.forms for each in (form.titles, form.attributes, form.links) if each]
    titles = list(dict.fromkeys(more))
    return titles + [file for form in entry.forms for file in form.files]


def _by_hand(entry: DataSet) -> str:
    files = " and ".join(entry.forms[0].files)
    where = f"{entry.page} ({entry.notes})" if entry.notes else entry.page
    place = entry.home if Path(entry.home).is_absolute() else f"<dir>/{entry.home}"
    named = "" if place == entry.home else f" and give --data-dir <dir> or {ENVIRONMENT}=<dir>"
    return f"get {files}{f' from {where}' if where else ''}; put into {place}/{named}"


def _span(times: Ints | None) -> tuple[str | None, str | None]:
    """The first and last time in ISO 8601, if times are seconds or milliseconds since 1970."""
    unit = None if times is None else time_unit(times)
    if times is None or unit is None:
        return None, None
    first, last = (datetime(1970, 1, 1, tzinfo=UTC) + int(t) * unit for t in (times.min(), times.max()))
    return first.isoformat(), last.isoformat()
