"""Readers for files with the attributes of items: genres, brands, categories."""

from __future__ import annotations

import json
from pathlib import Path

from solera.core.content import ItemAttributes
from solera.core.errors import DataError
from solera.data.genres import Genres
from solera.data.interactions import Interactions


def read_attributes(path: Path) -> Genres:
    """Read a JSON object with the list of attributes of every item id."""
    try:
        found = json.loads(path.read_bytes())
        return {str(item): tuple(map(str, attributes)) for item, attributes in found.items()}
    except (ValueError, AttributeError, TypeError) as error:
        message = f"{path} is not an object of lists of attributes: {error}"
        raise DataError(message, "get the file again from its publisher, or delete it") from None


def item_attributes(data: Interactions) -> ItemAttributes | None:
    """The attributes of all items of a data set, if they are known."""
    known = data.attributes
    return None if known is None else ItemAttributes(known.offsets, known.values)
