"""Readers for files with the attributes of items: genres, brands, categories."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from solera.core.content import ItemAttributes
from solera.core.errors import DataError
from solera.data.interactions import Interactions
from solera.data.table import read_text

_GENRES = 5  # the first column of a genre in MovieLens-100K's u.item; 1 where the film has it


def read_attributes(path: Path) -> Mapping[str, list[str]]:
    """Read a JSON object with the list of attributes of every item id."""
    try:
        found = json.loads(path.read_bytes())
        return {str(item): [str(each) for each in attributes] for item, attributes in found.items()}
    except (ValueError, AttributeError, TypeError) as error:
        message = f"{path} is not an object of lists of attributes: {error}"
        raise DataError(message, "get the file again from its publisher, or delete it") from None


def listed_attributes(
    separator: str, between: str, *, column: int, header: bool = False, encoding: str = "utf-8"
) -> Callable[[Path], Mapping[str, list[str]]]:
    """Make a reader for lines that begin with an item id and have its attributes in one of their columns.

    Some files omit empty columns at the end of a line: then the item has no attributes.
    """

    def read(path: Path) -> Mapping[str, list[str]]:
        lines = read_text(path, encoding).splitlines()[1 if header else 0 :]
        rows = (line.split(separator) for line in lines)
        return {
            row[0]: [each for each in "".join(row[column : column + 1]).split(between) if each]
            for row in rows
        }

    return read


def movielens_genres(path: Path) -> Mapping[str, list[str]]:
    """Read the genres in MovieLens-100K's u.item, by number."""
    rows = (line.split("|") for line in read_text(path, "latin-1").splitlines())
    return {row[0]: [str(genre) for genre, has in enumerate(row[_GENRES:]) if has == "1"] for row in rows}


def item_attributes(data: Interactions) -> ItemAttributes | None:
    """The attributes of all items of a data set, if they are known."""
    known = data.attributes
    return None if known is None else ItemAttributes(known.offsets, known.values)
