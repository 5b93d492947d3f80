"""Letterboxd: Settings → Data → Export your data. The zip as it comes, its unpacked folder, or one CSV file.

watched.csv       Date,Name,Year,Letterboxd URI
ratings.csv       Date,Name,Year,Letterboxd URI,Rating
diary.csv         Date,Name,Year,Letterboxd URI,Rating,Rewatch,Tags,Watched Date
likes/films.csv   Date,Name,Year,Letterboxd URI

`Date` is when a film was logged; the diary's `Watched Date` is when it was seen, and counts where given.
Links of the diary are those of its entries, so films are told apart by name and year. A film with a heart was
liked. Otherwise the rating decides, if there is one. Everything else in the zip is left alone: a watchlist
holds films not seen yet, and `deleted/` and `orphaned/` what the owner has taken back.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TextIO

from solera.core.errors import ConfigError, DataError
from solera.device.importers.entry import Entry, liked, only, rating_of, seconds, year_of
from solera.device.importers.source import Source
from solera.device.importers.table import Table, read_csv, table_of

WATCHED, RATINGS, DIARY, LIKES = FILES = ("watched.csv", "ratings.csv", "diary.csv", "likes/films.csv")
WATCHLIST = "watchlist.csv"
_STARS = 5
_NEEDED = {"Date", "Name", "Year"}
_OTHERS = "the same film in another file of the export"
_NOT_THESE = ("deleted", "orphaned", "lists", "likes", "__MACOSX")  # folders of an export
_WHAT = "give the zip as Letterboxd made it, or its watched.csv, diary.csv or ratings.csv"


class _Film:
    """What the files of an export say of one film."""

    __slots__ = ("hearted", "logged", "rating", "viewings")

    def __init__(self) -> None:
        self.hearted = False
        self.rating: float | None = None
        self.logged: int | None = None
        self.viewings = array("q")

    def liked(self, least: float) -> bool | None:
        return True if self.hearted else liked(self.rating, least)


def read_letterboxd(source: Source, options: Mapping[str, str]) -> Iterator[Entry]:
    """One entry per film and date."""
    only(options, (), "letterboxd")
    if source.like_from > _STARS:
        message = f"no rating on Letterboxd reaches {source.like_from:g}: the highest is {_STARS}"
        raise ConfigError(message, "give a lower --like-from, for example 3.5")
    if source.path.is_dir() or source.path.suffix.lower() == ".zip":
        yield from _whole_export(source)
        return
    if source.path.stem.startswith("watchlist"):
        raise DataError(f"{source.path} is a watchlist of films not watched yet", f"{_WHAT}; or --as-list")
    with read_csv(source) as table:
        for name, year, rating, _, time in _rows(source, table, source.path.name):
            yield Entry(name, year, time, liked=liked(rating, source.like_from))


def read_watchlist(source: Source, options: Mapping[str, str]) -> Iterator[Entry]:
    """The films of a watchlist: those to choose from, not seen yet."""
    only(options, (), "letterboxd")
    if source.path.suffix.lower() != ".zip":
        with read_csv(source) as table:
            yield from (Entry(row[0], row[1]) for row in _rows(source, table, source.path.name))
        return
    for file, text in source.unpacked(lambda entry: _inside(entry) == WATCHLIST):
        for name, year, *_ in _rows(source, table_of(source, text, within=file), WATCHLIST):
            yield Entry(name, year)


def _rows(
    source: Source, table: Table, file: str
) -> Iterator[tuple[str, int | None, float | None, bool, int | None]]:
    """Name, year, rating, whether the time is that of a viewing, and the time, row by row."""
    if not set(table.header) >= _NEEDED:
        shown = ",".join(table.shown())[:100]
        raise DataError(
            f"{source.path}: the first line of {file}, {shown!r}, is not the header Date,Name,Year,… of a"
            " Letterboxd export",
            _WHAT,
        )
    source.used[file] = 0
    for where, row in table.rows:
        source.used[file] += 1
        name, seen = row.get("Name", ""), row.get("Watched Date", "")
        if not name.strip():
            source.bad(where, "the film has no name")
            continue
        try:
            year, time = year_of(row.get("Year", "")), seconds(seen or row.get("Date", ""))
            rating = rating_of(row.get("Rating", ""))
        except ValueError as error:
            source.bad(where, str(error))
            continue
        yield name, year, rating, bool(seen), time


def _whole_export(source: Source) -> Iterator[Entry]:
    films: dict[tuple[str, int | None], _Film] = {}
    rows = 0
    for file, text in _files(source):
        for name, year, rating, is_viewing, time in _rows(source, table_of(source, text, within=file), file):
            if len(name) > source.budget.name:
                source.left_out[f"the name has more than {source.budget.name} characters"] += 1
                continue
            film = films.setdefault((name, year), _Film())
            if len(films) > source.budget.films:
                raise DataError(
                    f"{source.path} has more than {source.budget.films:,} films, which is the limit",
                    "import its files one by one",
                )
            rows += 1
            film.hearted |= file == LIKES
            if rating is not None and (film.rating is None or file == RATINGS):
                film.rating = rating
            if is_viewing and time is not None:
                film.viewings.append(time)
            elif film.logged is None or file == WATCHED:
                film.logged = time
    if not source.used:
        raise DataError(f"{source.path} has none of the files {', '.join(FILES)}", _WHAT)
    entries = 0
    for (name, year), film in films.items():
        opinion = film.liked(source.like_from)
        times: list[int | None] = [*sorted(set(film.viewings))] or [film.logged]
        for time in times:
            entries += 1
            yield Entry(name, year, time, liked=opinion)
    if rows > entries:
        source.left_out[_OTHERS] += rows - entries


def _files(source: Source) -> Iterator[tuple[str, TextIO]]:
    """The files that count, each with its name within the export."""
    if source.path.is_dir():
        for name in FILES:
            if (source.path / name).is_file():
                with source.text(source.path / name) as text:
                    yield name, text
        held = (file.relative_to(source.path).as_posix() for file in source.path.rglob("*.csv"))
        source.unused += sorted(name for name in held if name not in FILES)[: source.budget.zip_entries]
        return
    names: dict[str, str] = {}

    def wanted(entry: str) -> bool:
        name = _inside(entry)
        if name in FILES and name not in names.values():
            names[entry] = name
            return True
        if not entry.endswith("/"):
            source.unused.append(entry)
        return False

    for entry, text in source.unpacked(wanted):
        yield names[entry], text


def _inside(entry: str) -> str:
    """The name of a file within the export, which may be in a folder of its own."""
    parts = PurePosixPath(entry).parts
    if len(parts) > 1 and "/".join(parts) not in FILES and parts[0] not in _NOT_THESE:
        parts = parts[1:]
    return "/".join(parts)
