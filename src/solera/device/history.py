"""A user's history in the device's database: listed, searched, corrected, removed and exported."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from solera.core.errors import DeviceError
from solera.core.text import clean_text
from solera.device.catalogue import Catalogue, plain
from solera.device.store import Store

Row = tuple[str, int | None, bool | None]  # item, time, and whether the user liked it (None: not said)
COLUMNS = ("item", "title", "time", "source", "counts")  # of a history as CSV
_OF_USER = "(SELECT id FROM users WHERE name = ?)"
# How a cell begins that a spreadsheet takes for a formula. In some countries a semicolon ends a cell.
_FORMULA = r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"


class Interaction(NamedTuple):
    """One entry of a history; `counts` says whether recommendations are made from its item."""

    number: int
    item: str
    title: str
    time: int | None
    source: str
    counts: bool

    @property
    def date(self) -> str:
        """The time in ISO 8601, without the time of day if it is midnight; empty if unknown."""
        if self.time is None:
            return ""
        try:
            when = datetime.fromtimestamp(self.time, UTC)
        except (ValueError, OverflowError, OSError):
            return str(self.time)
        return f"{when:%Y-%m-%d}" if self.time % 86_400 == 0 else f"{when:%Y-%m-%dT%H:%M:%SZ}"


class History:
    """The histories of a device's users."""

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store, self._catalogue = store, catalogue

    def add(self, rows: Iterable[Row], user: str, source: str) -> int:
        """Add many items in one transaction; return how many were new.

        What the last row of an item says about liking it holds for all entries of the item.
        """
        known = self._catalogue.number
        with self._store.writing() as connection:
            owner, added = user_id(connection, user), 0
            for item, time, liked in rows:
                if item not in known:
                    raise DeviceError(f"no item {item!r} in the catalogue", "give an id that is in it")
                added += connection.execute(
                    "INSERT OR IGNORE INTO interactions (user, item, time, source) VALUES (?, ?, ?, ?)",
                    (owner, item, time, source),
                ).rowcount
                if liked is not None:
                    _set_liked(connection, owner, item, liked)
        return added

    def items(self, user: str, *, seen_only: bool = False) -> list[str]:
        """The user's items, each where it was first met, oldest first: those that count, or all."""
        return list(self.times(user, seen_only=seen_only))

    def times(self, user: str, *, seen_only: bool = False) -> dict[str, int | None]:
        """The same items with the seconds since 1970 (None: unknown) when they were first met."""
        rows = self._store.rows(
            f"SELECT item, time FROM interactions AS i WHERE user = {_OF_USER} AND (? OR NOT EXISTS"
            " (SELECT 1 FROM seen_only WHERE seen_only.user = i.user AND seen_only.item = i.item))"
            " ORDER BY time NULLS FIRST, id",
            user,
            seen_only,
        )
        found: dict[str, int | None] = {}
        for row in rows:
            found.setdefault(row["item"], row["time"])
        return found

    def entries(self, user: str, search: str = "") -> list[Interaction]:
        """All entries, oldest first; with `search`, those whose title or id contains the text."""
        rows = self._store.rows(
            "SELECT id, item, time, source, NOT EXISTS (SELECT 1 FROM seen_only AS s WHERE s.user = i.user"
            f" AND s.item = i.item) AS counts FROM interactions AS i WHERE user = {_OF_USER}"
            " ORDER BY time NULLS FIRST, id",
            user,
        )
        wanted = plain(search) if search else ""
        return [
            Interaction(row["id"], row["item"], title, row["time"], row["source"], bool(row["counts"]))
            for row in rows
            if wanted in plain(title := clean_text(self._catalogue.title(row["item"])))
            or wanted == plain(row["item"])
        ]

    def entry(self, user: str, number: int) -> Interaction:
        """The entry with a number."""
        found = next((each for each in self.entries(user) if each.number == number), None)
        if found is None:
            raise DeviceError(
                f"the history of {user!r} has no entry {number}", "solera device history lists the numbers"
            )
        return found

    def correct(
        self, user: str, number: int, *, item: str | None = None, time: int | None, liked: bool | None = None
    ) -> Interaction:
        """Change an entry's item, time or whether it counts, and return it as it is then."""
        old = self.entry(user, number)
        try:
            with self._store.writing() as connection:
                connection.execute(
                    "UPDATE interactions SET item = ?, time = ? WHERE id = ?",
                    (item or old.item, time, number),
                )
                if liked is not None:
                    _set_liked(connection, user_id(connection, user), item or old.item, liked)
                _drop_opinions(connection)
        except DeviceError:
            if self._store.rows(
                f"SELECT 1 FROM interactions WHERE user = {_OF_USER} AND item = ? AND time IS ? AND id != ?",
                user,
                item or old.item,
                time,
                number,
            ):
                raise DeviceError(
                    "the history has that item at that time already",
                    f"solera device forget FOLDER {number} removes the duplicate",
                ) from None
            raise
        self._forget_reported()
        self._store.wipe()
        return self.entry(user, number)

    def remove(self, user: str, numbers: Iterable[int]) -> list[Interaction]:
        """Delete entries, overwrite them on disk, and return what they were."""
        gone = [self.entry(user, number) for number in dict.fromkeys(numbers)]
        with self._store.writing() as connection:
            for each in gone:
                connection.execute("DELETE FROM interactions WHERE id = ?", (each.number,))
            _drop_opinions(connection)
        self._forget_reported()
        self._store.wipe()
        return gone

    def _forget_reported(self) -> None:
        from solera.device import reports  # noqa: PLC0415 - not to recommend

        reports.forget_missing(self._store, self._catalogue)


def as_csv(entries: Iterable[Interaction]) -> str:
    """The entries as CSV, which `solera device import DIR csv` reads and spreadsheets take for text."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for each in entries:
        cells = (each.item, each.title, each.date, each.source, "yes" if each.counts else "no")
        lines.writerow(map(quoted, cells))
    return text.getvalue()


def quoted(cell: str) -> str:
    """The cell with one more `'` before a formula, also if it has some already."""
    return re.sub(rf"(^|;)(?={_FORMULA})", r"\1'", cell)


def unquoted(cell: str) -> str:
    """The cell without what `quoted` has added."""
    return re.sub(rf"(^|;)'(?={_FORMULA})", r"\1", cell)


def as_json(entries: Iterable[Interaction]) -> str:
    """The entries as a JSON list."""
    listed = [each._asdict() | {"date": each.date} for each in entries]
    return json.dumps(listed, indent=2, ensure_ascii=False) + "\n"


def user_id(connection: sqlite3.Connection, name: str) -> int:
    """The number of a user, who is new if there is none of that name."""
    if clean_text(name) != name:
        raise DeviceError(f"{name!r} is not a valid user name", "remove the invisible characters")
    connection.execute("INSERT OR IGNORE INTO users (name) VALUES (?)", (name,))
    return int(connection.execute("SELECT id FROM users WHERE name = ?", (name,)).fetchone()[0])


def forget_item(connection: sqlite3.Connection, item: str, user: str | None) -> None:
    """Delete an item from the history of one user, or of all."""
    whose, values = ("", (item,)) if user is None else (f" AND user = {_OF_USER}", (item, user))
    connection.execute(f"DELETE FROM interactions WHERE item = ?{whose}", values)
    for table in ("aliases", "hidden", "listed"):
        connection.execute(f"DELETE FROM {table} WHERE item = ?{whose}", values)
    _drop_opinions(connection)


def _set_liked(connection: sqlite3.Connection, owner: int, item: str, liked: bool) -> None:
    change = "DELETE FROM seen_only WHERE user = ? AND item = ?"
    if not liked:
        change = "INSERT OR IGNORE INTO seen_only (user, item) VALUES (?, ?)"
    connection.execute(change, (owner, item))


def _drop_opinions(connection: sqlite3.Connection) -> None:
    """Delete opinions on items that are in nobody's history any more."""
    connection.execute(
        "DELETE FROM seen_only WHERE NOT EXISTS (SELECT 1 FROM interactions AS i"
        " WHERE i.user = seen_only.user AND i.item = seen_only.item)"
    )
