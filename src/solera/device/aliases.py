"""Titles of other services that a user has matched with items of the catalogue, remembered for imports."""

from __future__ import annotations

from typing import NamedTuple

from solera.device.catalogue import plain, split_year
from solera.device.history import user_id
from solera.device.store import Store

Key = tuple[str, int | None]
_OF_USER = "user = (SELECT id FROM users WHERE name = ?)"


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
