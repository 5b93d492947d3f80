"""Readers of the genres that a publisher's file of items gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from solera.data.table import read_lines

Genres = dict[str, tuple[str, ...]]  # by the item's id
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


def flagged_genres(path: Path) -> Genres:
    """Read MovieLens-100K's u.item: the last fields of a line are a 1 for every genre that the film has."""
    found = {}
    for line in read_lines(path, "latin-1").to_list():
        id_, *fields = line.strip().split("|")
        flags = zip(_ML_100K, fields[-len(_ML_100K) :], strict=False)
        found[id_] = tuple(name for name, flag in flags if flag == "1" and name != "unknown")
    return found
