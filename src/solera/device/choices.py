"""What a user has chosen: items to hide, to dislike and to choose from, and items that titles stand for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from solera.device.catalogue import plain, split_year
from solera.device.history import user_id
from solera.device.store import Store

_OF_USER = "user = (SELECT id FROM users WHERE name = ?)"


class Choices:
    """The choices of one user."""

    def __init__(self, store: Store, user: str) -> None:
        self._store, self._user = store, user

    def hidden(self) -> list[str]:
        """Ids of the items that are never recommended, in the order they were hidden."""
        return self._items("hidden")

    def hide(self, item: str, hidden: bool = True) -> None:
        """Hide an item, or show it again."""
        self._mark("hidden", item, hidden)

    def disliked(self) -> list[str]:
        """Ids of the items that are never recommended, and those like them less."""
        return self._items("disliked")

    def dislike(self, item: str, disliked: bool = True) -> None:
        """Dislike an item, or take that back."""
        self._mark("disliked", item, disliked)

    def _mark(self, table: str, item: str, is_marked: bool) -> None:
        with self._store.writing() as connection:
            owner = user_id(connection, self._user)
            change = f"DELETE FROM {table} WHERE user = ? AND item = ?"
            if is_marked:
                change = f"INSERT OR IGNORE INTO {table} (user, item) VALUES (?, ?)"
            connection.execute(change, (owner, item))

    def listed(self) -> list[str]:
        """Ids of the items of the user's lists."""
        return self._items("listed")

    def add_listed(self, items: Iterable[str], source: str) -> int:
        """Add items to the user's lists; return how many were new."""
        with self._store.writing() as connection:
            owner = user_id(connection, self._user)
            return sum(
                connection.execute(
                    "INSERT OR IGNORE INTO listed (user, item, source) VALUES (?, ?, ?)",
                    (owner, item, source),
                ).rowcount
                for item in items
            )

    def replace_listed(self, items: Iterable[str], source: str) -> None:
        """Make these the items that a source has put on the user's lists."""
        wanted = dict.fromkeys(items)
        rows = self._store.rows(
            f"SELECT item FROM listed WHERE {_OF_USER} AND source = ?", self._user, source
        )
        if {row["item"] for row in rows} != wanted.keys():
            with self._store.writing() as connection:
                connection.execute(
                    f"DELETE FROM listed WHERE {_OF_USER} AND source = ?", (self._user, source)
                )
                self.add_listed(wanted, source)

    def clear_listed(self) -> None:
        """Delete the user's lists, and overwrite them on disk."""
        with self._store.writing() as connection:
            connection.execute(f"DELETE FROM listed WHERE {_OF_USER}", (self._user,))
        self._store.wipe()

    def _items(self, table: str) -> list[str]:
        rows = self._store.rows(f"SELECT item FROM {table} WHERE {_OF_USER} ORDER BY rowid", self._user)
        return [str(row["item"]) for row in rows]


Key = tuple[str, int | None]


class Alias(NamedTuple):
    """A title as another service writes it, and the item it stands for; without a year, of any year."""

    title: str
    year: int | None
    item: str


class Aliases:
    """The matches of one user."""

    def __init__(self, store: Store, user: str) -> None:
        self._store, self._user = store, user

    def listed(self) -> list[Alias]:
        """All matches, by title."""
        rows = self._store.rows(
            f"SELECT title, year, item FROM aliases WHERE {_OF_USER} ORDER BY key", self._user
        )
        return [Alias(*row) for row in rows]

    def by_key(self) -> dict[Key, str]:
        """The items by plain title and year."""
        return {(plain(each.title), each.year): each.item for each in self.listed()}

    def add(self, title: str, year: int | None, item: str) -> None:
        """Remember a match. It replaces an earlier one of the same title and year."""
        title, year = _with_year(title, year)
        with self._store.writing() as connection:
            owner = user_id(connection, self._user)
            values = (owner, plain(title), year)
            connection.execute("DELETE FROM aliases WHERE user = ? AND key = ? AND year IS ?", values)
            connection.execute("INSERT INTO aliases VALUES (?, ?, ?, ?, ?)", (*values, title, item))

    def remove(self, title: str) -> bool:
        """Forget a match; False if there is none."""
        title, year = _with_year(title, None)
        with self._store.writing() as connection:
            done = connection.execute(
                f"DELETE FROM aliases WHERE {_OF_USER} AND key = ? AND year IS ?",
                (self._user, plain(title), year),
            )
        if done.rowcount:
            self._store.wipe()
        return bool(done.rowcount)


def matched(aliases: dict[Key, str], title: str, year: int | None) -> str | None:
    """The item that a title of that year stands for."""
    title, year = _with_year(title, year)
    return aliases.get((plain(title), year)) or aliases.get((plain(title), None))


def _with_year(title: str, year: int | None) -> Key:
    return (title, year) if year is not None else split_year(title)
