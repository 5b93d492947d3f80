"""What a user has chosen: items to hide, items that are disliked, and items to choose from."""

from __future__ import annotations

from collections.abc import Iterable

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
