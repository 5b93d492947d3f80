"""Readers for the publishers' formats and for users' own files, all with the same columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from solera.core.errors import DataError, closest
from solera.core.types import Ints
from solera.data.table import Table, malformed, parquet_columns, read_lines, read_table, read_text

Genres = dict[str, tuple[str, ...]]  # by the item's id
Ids = dict[str, dict[str, str]]  # elsewhere: by the item's id, then by kind
_ML_100K = (  # the order of the flags in u.item
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
)


def genres_at(
    index: int, separator: str, within: str, *, encoding: str = "utf-8", header: bool = False
) -> Callable[[Path], Genres]:
    """Make a reader for a file of items that has genres in one field, separated by `within`."""

    def read(path: Path) -> Genres:
        lines = (line.split(separator) for line in read_lines(path, encoding)[1 if header else 0 :].to_list())
        return {
            fields[0]: tuple(name for name in fields[index].strip().split(within) if name)
            for fields in lines
            if len(fields) > index
        }

    return read


def columns_of(path: Path, *names: str) -> list[list[str]]:
    """Some columns of a CSV file with a header, as text."""
    table = read_table(path, ",", quoted=True)
    missing = next((name for name in names if name not in table.columns), None)
    if missing:
        raise malformed(path, 1, f"the header names no column {missing!r}", ",".join(table.columns))
    return [table.columns[name].to_list() for name in names]


def movielens_titles(path: Path) -> dict[str, str]:
    """Read the titles of MovieLens' movies.csv: movieId,title,genres."""
    ids, names = columns_of(path, "movieId", "title")
    return dict(zip(ids, (name.strip() for name in names), strict=True))


def movielens_genres(path: Path) -> Genres:
    """Read the genres of the same file."""
    ids, genres = columns_of(path, "movieId", "genres")
    listed = ("" if text == "(no genres listed)" else text for text in genres)
    return {id_: tuple(filter(None, text.split("|"))) for id_, text in zip(ids, listed, strict=True)}


def movielens_ids(path: Path) -> Ids:
    """Read MovieLens' links.csv: movieId,imdbId,tmdbId. Films that TMDB does not have lack the last."""
    columns = zip(*columns_of(path, "movieId", "imdbId", "tmdbId"), strict=True)
    return {
        id_: {kind: text for kind, text in (("tmdb", tmdb), ("imdb", imdb and f"tt{imdb}")) if text}
        for id_, imdb, tmdb in columns
    }


def read_listens(paths: list[Path]) -> Rows:
    """Read a dump of ListenBrainz, one JSON object per listen, as users and the artists they listen to.

    An artist is the first one of a listen's `artist_mbids`; listens without any are left out. The time is
    that of the first listen.
    """
    info = pl.Struct({"artist_mbids": pl.List(pl.String)})
    fields: dict[str, Any] = {
        "user_id": pl.Int64,
        "timestamp": pl.Int64,
        "listened_at": pl.Int64,
        "track_metadata": pl.Struct({"artist_name": pl.String, "additional_info": info}),
    }
    metadata = pl.col("track_metadata").struct
    try:
        found = (
            pl.scan_ndjson(paths, schema=fields)
            .select(
                user="user_id",
                item=metadata.field("additional_info").struct.field("artist_mbids").list.first(),
                time=pl.coalesce("timestamp", "listened_at"),
                title=metadata.field("artist_name"),
            )
            .drop_nulls(["user", "item", "time"])
            .group_by("user", "item")
            .agg(pl.col("time").min(), pl.col("title").drop_nulls().first())
            .sort("user", "time", "item")
            .collect(engine="streaming")
        )
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{paths[0].parent} has a listen that cannot be read: {str(error).splitlines()[0]}",
            "unpack the dump again",
        ) from None
    if not len(found):
        raise DataError(
            f"{paths[0].parent} has no listen with artist_mbids", "check that it is a dump of listens"
        )
    named = found.group_by("item").agg(pl.col("title").drop_nulls().mode().sort().first())
    titles = {item: title for item, title in named.iter_rows() if title}
    return Rows(found["user"], found["item"], found["time"].to_numpy(), titles)


def flagged_genres(path: Path) -> Genres:
    """Read MovieLens-100K's u.item: the last fields of a line are a 1 for every genre that the film has."""
    found = {}
    for line in read_lines(path, "latin-1").to_list():
        id_, *fields = line.strip().split("|")
        flags = zip(_ML_100K, fields[-len(_ML_100K) :], strict=False)
        found[id_] = tuple(name for name, flag in flags if flag == "1" and name != "unknown")
    return found


def read_attributes(path: Path) -> Genres:
    """Read a JSON object with the list of attributes of every item id."""
    try:
        found = json.loads(path.read_bytes())
        return {str(item): tuple(map(str, attributes)) for item, attributes in found.items()}
    except (ValueError, AttributeError, TypeError) as error:
        message = f"{path} is not an object of lists of attributes: {error}"
        raise DataError(message, "get the file again from its publisher, or delete it") from None


_HEADERS = {  # of HetRec 2011 and of MovieLens
    **dict.fromkeys(("userID", "userId"), "user"),
    **dict.fromkeys(("artistID", "movieID", "movieId"), "item"),
    "timestamp": "time",
}
_OWN = {  # accepted names for a user's own columns, compared without case, "_" and "-"
    "user": ("user", "userid", "uid", "customer", "customerid", "reviewerid"),
    "item": ("item", "itemid", "iid", "movieid", "productid", "artistid", "bookid", "asin"),
    "time": ("time", "timestamp", "ts", "date", "datetime", "unixreviewtime"),
    "title": ("title", "itemtitle", "movietitle", "itemname"),
}
SUFFIXES = (".csv", ".tsv", ".parquet")  # of a user's own file


@dataclass(frozen=True, eq=False)
class Rows:
    """The content of a file: ids as text or whole numbers, and times and titles if it has any."""

    users: pl.Series
    items: pl.Series
    times: Ints | None = None
    titles: dict[str, str] | None = None


def delimited(separator: str, names: Sequence[str] | None = None) -> Callable[[list[Path]], Rows]:
    """Make a reader for files with one interaction per line.

    `names` are the columns, of which "user", "item" and "time" are read; None if the file has
    the header of the files of HetRec 2011 or MovieLens.
    """

    def read(paths: list[Path]) -> Rows:
        table = read_table(paths[0], separator, names)
        columns = {_HEADERS.get(name, name): values for name, values in table.columns.items()}
        for needed in ("user", "item"):
            if needed not in columns:
                header = separator.join(table.columns)
                raise malformed(paths[0], 1, f"the header names no {needed} column", header)
        table = replace(table, columns=columns)
        times = table.times("time") if "time" in columns else None
        return Rows(table.compact_ids("user"), table.compact_ids("item"), times)

    return read


def read_lists(paths: list[Path]) -> Rows:
    """Read files with lines `user item item …`, in order. A user may have no item in one of them."""
    users, items = [], []
    for path in paths:
        lines = read_lines(path)
        words = lines.str.extract_all(r"\S+")
        empty = (words.list.len() == 0).arg_true()
        if len(empty):
            raise malformed(path, empty[0] + 1, "the line is empty", lines[empty[0]])
        pairs = pl.DataFrame({"user": words.list.first(), "item": words.list.slice(1)})
        pairs = pairs.filter(pl.col("item").list.len() > 0).explode("item")
        users.append(pairs["user"])
        items.append(pairs["item"])
    return Rows(pl.concat(users), pl.concat(items))


def read_sequences(paths: list[Path]) -> Rows:
    """Read lines `user item item …` that are in order of time. A row's place in the file is its time."""
    rows = read_lists(paths)
    return replace(rows, times=pl.int_range(len(rows.users), eager=True).to_numpy())


def read_baskets(paths: list[Path]) -> Rows:
    """Read a JSON object with every user's baskets, oldest first. The basket's number is the time."""
    path = paths[0]
    text = read_text(path)
    try:
        histories = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        raise malformed(path, error.lineno, f"not JSON ({error.msg})", line) from None
    if not isinstance(histories, dict) or not histories:
        raise malformed(path, 1, 'not an object {"user": [[item, item], [item]]}', text[:100])
    users: list[str] = []
    items: list[str] = []
    times: list[int] = []
    for user, history in histories.items():
        for number, basket in enumerate(_baskets(path, user, history)):
            users += [user] * len(basket)
            items += map(str, basket)
            times += [number] * len(basket)
    columns = (pl.Series(users, dtype=pl.String), pl.Series(items, dtype=pl.String))
    return Rows(*columns, np.array(times, dtype=np.int64))


def _baskets(path: Path, user: str, history: Any) -> list[list[int | str]]:
    shaped = isinstance(history, list) and all(isinstance(basket, list) for basket in history)
    if not shaped or not all(isinstance(item, int | str) and item != "" for b in history for item in b):
        message = f"{path}: the baskets of user {user!r} are not lists of item ids"
        raise DataError(message, "expected [[item, item], [item]]")
    return list(history)


def titles(
    separator: str, *, encoding: str = "utf-8", header: bool = False, year: int | None = None
) -> Callable[[Path], dict[str, str]]:
    """Make a reader for a file of items: id, then title. `year` is the index of a separate year field.

    Fields after the title are not counted, because some files omit empty fields at the end of a line.
    """

    def read(path: Path) -> dict[str, str]:
        lines = read_lines(path, encoding)[1 if header else 0 :]
        fields = lines.str.split(separator)
        short = (fields.list.len() < 2).arg_true()
        if len(short):
            row = short[0]
            raise malformed(path, row + 1 + header, "an id and a title were expected", lines[row])
        names = fields.list.get(1).str.strip_chars().to_list()
        if year is not None:
            years = fields.list.get(year, null_on_oob=True).fill_null("").to_list()
            names = [f"{n} ({y})" if y.isdigit() else n for n, y in zip(names, years, strict=True)]
        return dict(zip(fields.list.get(0).to_list(), names, strict=True))

    return read


def read_own(path: Path, columns: dict[str, str] | None = None) -> Rows:
    """Read a user's own CSV, TSV or Parquet file. `columns` names its user, item, time and title columns."""
    return rows_of(_own_table(path), columns)


def rows_of(table: Table, columns: dict[str, str] | None = None) -> Rows:
    """The interactions in a table whose columns have the usual names or those in `columns`."""
    names = _own_columns(str(table.path), list(table.columns), columns or {})
    items = table.compact_ids(names["item"])
    titled = None
    if "title" in names:
        text = table.columns[names["title"]].cast(pl.String)
        # Reversed, so that the first of several titles for one item wins.
        pairs = zip(items.cast(pl.String).reverse().to_list(), text.reverse().to_list(), strict=True)
        titled = {item: title for item, title in pairs if title}
    times = table.times(names["time"]) if "time" in names else None
    return Rows(table.compact_ids(names["user"]), items, times, titled)


def _own_table(path: Path) -> Table:
    if path.suffix == ".csv":
        return read_table(path, ",", quoted=True)
    if path.suffix == ".tsv":
        return read_table(path, "\t", quoted=True)
    if path.suffix != ".parquet":
        raise DataError(f"{path}: unknown file type {path.suffix!r}", f"known types: {', '.join(SUFFIXES)}")
    try:
        columns = parquet_columns(path)
        rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    except (pl.exceptions.PolarsError, OSError) as error:
        message = f"{path} is not a Parquet file: {str(error).splitlines()[0]}"
        raise DataError(message, "export the file again, or give a .csv file") from None
    if not rows:
        raise DataError(f"{path} has no rows", "check that it is the right file")
    return Table(path, columns, range(1, rows + 1), None)


def _own_columns(path: str, columns: list[str], given: dict[str, str]) -> dict[str, str]:
    """Map every kind of column that the file has to the file's name for it."""
    found = f"{path} has the columns {', '.join(columns)}"
    plain = {name.lower().replace("_", "").replace("-", ""): name for name in reversed(columns)}
    names = {}
    for kind in given:
        if kind not in _OWN:
            raise DataError(f"columns: unknown key {kind!r}", closest(kind, list(_OWN)))
    for kind, usual in _OWN.items():
        name = given.get(kind) or next((plain[u] for u in usual if u in plain), None)
        if name is not None and name not in columns:
            raise DataError(f"no column {name!r} for the {kind}: {found}", closest(name, columns))
        if name is None and kind in ("user", "item"):
            hint = "name them: --columns user=…,item=…,time=…"
            raise DataError(f"no column found for the {kind}: {found}", hint)
        if name is not None:
            names[kind] = name
    return names


_NAME = "the table"


def is_frame(source: object) -> bool:
    """Whether an object is a table in memory from a supported library."""
    import narwhals.stable.v2 as nw  # noqa: PLC0415 - most runs read files
    from narwhals.exceptions import DuplicateError  # noqa: PLC0415

    try:
        return nw.from_native(source, eager_only=True, pass_through=True) is not source
    except DuplicateError:
        raise DataError(f"{_NAME} has two columns with the same name", "rename or drop one") from None


def read_frame(source: Any, columns: dict[str, str] | None = None) -> Rows:
    """Read a table with one row per interaction. `columns` names its user, item, time and title columns."""
    import narwhals.stable.v2 as nw  # noqa: PLC0415 - most runs read files

    frame = nw.from_native(source, eager_only=True)
    if not len(frame):
        raise DataError(f"{_NAME} has no rows", "check how the table was made")
    named = {str(name): name for name in frame.columns}
    found: dict[str, pl.Series] = {}
    for name in _own_columns(_NAME, list(named), columns or {}).values():
        values = frame[named[name]]
        if not _is_text(values):
            found[name] = pl.Series(name, values.to_numpy())
            continue
        listed = [None if isinstance(each, float) and isnan(each) else each for each in values.to_list()]
        try:
            found[name] = pl.Series(name, listed)
        except TypeError:
            kinds = sorted({type(each).__name__ for each in listed if each is not None})
            raise DataError(
                f"the column {name!r} of {_NAME} mixes {' and '.join(kinds)}", "make them all text"
            ) from None
    rows = np.arange(1, len(frame) + 1, dtype=np.int64)
    return rows_of(Table(Path(_NAME), found, rows, None), columns)


def _is_text(values: Any) -> bool:
    return not (values.dtype.is_numeric() or values.dtype.is_temporal()) or bool(values.is_null().any())
