"""Threshold reports on a device: what its owner has agreed to, and the record of what has gone.

`federation.reports.contributing` sends. The record is the ledger of `privacy.reports.measurements`, which
makes everything go once. It is in the device's database and names items by their numbers in the catalogue.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from solera.core.frozen import Frozen
from solera.device.bundle import Bundle
from solera.device.catalogue import Catalogue
from solera.device.store import Store
from solera.privacy.reports.measurements import ITEM, ORDERED, PAIR, Ledger

KEY = "reports.key"  # of the device, beside its public half
SOLVED_FROM = {"fedease": (ITEM, PAIR), "fedslist": (ITEM, ORDERED)}  # kinds of measurements, by method
_SETTING = "reports"


class Agreement(Frozen):
    """What the owner has agreed to."""

    helper: str = Field(min_length=1, description="address of the helper")
    server: str = Field(
        pattern="^[0-9a-f]{64}$", description="public key of the server, which alone can read reports"
    )
    federation: str = Field(min_length=1, description="name of the federation")
    least_devices: int = Field(ge=2, description="T: the server reads what at least so many devices report")
    newest: int = Field(ge=1, description="items that a new one makes pairs with")
    ordered: bool = Field(default=False, description="pairs tell which item was first, and how far apart")
    user: str = Field(min_length=1, description="whose history")

    @classmethod
    def read(cls, store: Store) -> Agreement | None:
        """What was agreed to, if anything."""
        text = store.settings().get(_SETTING)
        return cls.model_validate_json(text) if text else None

    def write(self, store: Store) -> None:
        """Agree to it."""
        store.set(_SETTING, self.model_dump_json())


def asks_for_order(bundle: Bundle) -> bool:
    """Whether the method of a bundle reads the order of pairs."""
    return ORDERED in SOLVED_FROM.get(bundle.manifest.method, ())


def end(store: Store) -> None:
    """Agree to nothing any more. The record stays, so that nothing would go twice."""
    if Agreement.read(store):
        store.set(_SETTING, "")


@contextmanager
def ledger(store: Store, federation: str) -> Iterator[Ledger]:
    """The record of one federation, for as long as the block lasts."""
    database = sqlite3.connect(store.path, timeout=10)
    try:
        database.execute("PRAGMA secure_delete = ON")
        yield Ledger(database, federation)
    finally:
        database.close()


def went(store: Store, catalogue: Catalogue, federation: str) -> dict[int, list[list[str]]]:
    """Items and pairs that have gone, by night, with their titles; without titles if an item was deleted."""
    if federation not in _federations(store):
        return {}
    found: dict[int, list[list[str]]] = {}
    with ledger(store, federation) as record:
        for night, each in record.gone():
            rows = dict.fromkeys((each.first, each.second)) if each else ()
            titles = [catalogue.items[row].title for row in rows if row < len(catalogue.items)]
            found.setdefault(night, []).append(titles)
    return found


def forget_missing(store: Store, catalogue: Catalogue) -> None:
    """Delete items from the record that are in nobody's history any more."""
    for federation in _federations(store):
        items = store.rows("SELECT DISTINCT item FROM interactions")
        held = {catalogue.number.get(row["item"]) for row in items}
        with ledger(store, federation) as record:
            named = {row for _, each in record.gone() if each for row in (each.first, each.second)}
            for row in named - held:
                record.forget(row)


def forget_all(store: Store, folder: Path) -> None:
    """Delete the record, what was agreed to, and the key that the helper knows this device by."""
    if _federations(store):
        with store.writing() as connection:
            connection.execute("DELETE FROM reported")
            connection.execute("DELETE FROM reporter")
    end(store)
    for name in KEY, f"{KEY}.pub":
        (folder / name).unlink(missing_ok=True)


def _federations(store: Store) -> list[str]:
    """Federations that there is a record of."""
    there = store.rows("SELECT 1 FROM sqlite_master WHERE name = 'reporter'")
    return [row["federation"] for row in store.rows("SELECT federation FROM reporter")] if there else []
