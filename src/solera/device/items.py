"""A publisher's own file of items: id, title and, if it has them, year, genres and ids elsewhere of each."""

from __future__ import annotations

from pathlib import Path

from solera.core.errors import DataError
from solera.core.text import clean_text
from solera.data.table import Table, read_table
from solera.device.bundle import ID_KINDS, Item
from solera.device.catalogue import split_year

_NEEDED, _YEAR, _GENRES = ("id", "title"), "year", "genres"


def read_items(path: Path) -> list[Item]:
    """The items in the order of the file; an id given twice or left out is an error with its line.

    Without a column for it, an item's year is the one in parentheses after its title.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file", "give a CSV file with the columns id,title")
    table = read_table(path, "\t" if path.suffix == ".tsv" else ",", quoted=True)
    wrong = set(table.columns) ^ {*_NEEDED, _YEAR, _GENRES}
    if wrong - {_YEAR, _GENRES, *ID_KINDS}:
        raise DataError(
            f"{path} has the columns {', '.join(table.columns)}",
            "its first line must be id,title; year and genres may follow, with genres as in Comedy|Drama,"
            f" and ids elsewhere: {', '.join(ID_KINDS)}",
        )
    ids = [clean_text(id_).strip() for id_ in table.ids("id").to_list()]
    titles = [clean_text(title).strip() for title in table.columns["title"].to_list()]
    seen: dict[str, int] = {}
    for row, (id_, title) in enumerate(zip(ids, titles, strict=True)):
        if not (id_ and title):
            raise table.fault(row, f"the {'title' if id_ else 'id'} is empty")
        if id_ in seen:
            raise table.fault(row, f"item {id_!r} stands in line {table.lines[seen[id_]]} already")
        seen[id_] = row
    years = _years(table) if _YEAR in table.columns else [split_year(title)[1] for title in titles]
    genres = _genres(table) if _GENRES in table.columns else [()] * len(ids)
    return [Item(*each) for each in zip(ids, titles, years, genres, _elsewhere(table, len(ids)), strict=True)]


def _elsewhere(table: Table, count: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{} for _ in range(count)]
    for kind in (each for each in ID_KINDS if each in table.columns):
        for ids, text in zip(found, table.columns[kind].to_list(), strict=True):
            if id_ := clean_text(text).strip():
                ids[kind] = id_
    return found


def _years(table: Table) -> list[int | None]:
    texts = [text.strip() for text in table.columns[_YEAR].to_list()]
    for row, text in enumerate(texts):
        if text and not (text.isascii() and text.isdigit() and len(text) <= 4):
            raise table.fault(row, f"the year {text!r} is not a year")
    return [int(text) if text else None for text in texts]


def _genres(table: Table) -> list[tuple[str, ...]]:
    fields = (clean_text(text).split("|") for text in table.columns[_GENRES].to_list())
    return [tuple(name.strip() for name in names if name.strip()) for names in fields]
