"""Parts of a data set by rank: ml-1m@users=1-500 is what the 500 most active users of ml-1m did.

Users are ranked by their number of interactions, and items (`@items=1-1000`) by how many they are in. Of
equals, the one with the smaller number in the data set comes first. The others are left out, and the rest is
renumbered.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from solera.core.errors import DataError
from solera.data.interactions import Interactions

_FORM = re.compile(r"(?P<of>users|items)=(?P<first>[1-9]\d*)-(?P<last>[1-9]\d*)")
_EXAMPLE = "write ml-1m@users=1-500 or ml-1m@items=1-1000"


class Subset(NamedTuple):
    """The users or items from one rank to another, both included; the first rank is 1."""

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


def parse(name: str) -> tuple[str, Subset | None]:
    """The data set of a name, and the part of it that the name asks for, if any."""
    base, at, text = name.partition("@")
    if not at:
        return name, None
    found = _FORM.fullmatch(text)
    if found is None or int(found["first"]) > int(found["last"]):
        raise DataError(f"{text!r} is not a part of a data set", _EXAMPLE)
    return base, Subset(found["of"], int(found["first"]), int(found["last"]))
