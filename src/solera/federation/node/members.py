"""A device's users as members of a federation: their slots, histories, and parameters on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from solera.core.leaf import Params
from solera.data.ragged import Ragged
from solera.device.bundle import CATALOGUE
from solera.device.dates import days_of
from solera.device.device import NEWEST, Device
from solera.device.tensors import Arrays, put_tensors
from solera.federation.common.protocol import Packet
from solera.federation.node.work import without_last

_FEDERATION, _PENDING = "federation", "pending"  # settings


class Members:
    """Reads and writes; every step is one transaction."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._store = device.store
        self._settings = device.store.settings()

    @property
    def federation(self) -> str:
        """The federation that the device takes part in; empty before the first."""
        return self._settings.get(_FEDERATION, "")

    @property
    def catalogue(self) -> str:
        """The digest of the catalogue's content."""
        return self.device.bundle.manifest.sha256[CATALOGUE]

    def join(self, federation: str, forget: Sequence[str]) -> None:
        """Join another federation and delete the named parameters, which the former federation knew."""
        with self._store.writing() as connection:
            connection.execute("DELETE FROM tensors WHERE kind IN ('pending', 'shared')")
            for name in forget:
                connection.execute("DELETE FROM tensors WHERE kind = 'personal' AND name = ?", (name,))
            self._set({_FEDERATION: federation, _PENDING: ""})

    def slots(self) -> dict[int, str]:
        """Users with a history, by slot. New users get a slot."""
        with self._store.writing() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO members (user) SELECT DISTINCT user FROM interactions ORDER BY user"
            )
        rows = self._store.rows(
            "SELECT slot, name FROM members JOIN users ON users.id = user"
            " WHERE EXISTS (SELECT 1 FROM interactions WHERE user = users.id) ORDER BY slot"
        )
        return {int(row["slot"]): row["name"] for row in rows}

    def histories(self, users: Sequence[str], *, hold_back: bool = False) -> Ragged:
        """Histories of the users, as items of the catalogue, oldest first; without the item held back."""
        number = self.device.catalogue.number
        held = [
            {number[item]: time for item, time in self.device.times(user).items() if item in number}
            for user in users
        ]
        days = [days_of(list(times.values())) for times in held if times]
        known = [each for each in days if each is not None]
        lists = Ragged.from_lists([list(times) for times in held])
        if known and len(known) == len(days):
            lists = replace(lists, days=np.concatenate(known))
        return without_last(lists) if hold_back else lists

    def personal(self, user: str) -> Params:
        """A user's own parameters as the server believes them to be."""
        return {name: torch.from_numpy(v.copy()) for name, v in self.device.personal(user).items()}

    def settle(self, accepted: str) -> None:
        """Make accepted updates final, and discard those that the server did not accept."""
        pending = self._settings.get(_PENDING, "")
        with self._store.writing() as connection:
            if pending and pending == accepted:
                connection.execute(
                    "DELETE FROM tensors WHERE kind = 'personal' AND user IN"
                    " (SELECT user FROM tensors WHERE kind = 'pending')"
                )
                connection.execute("UPDATE tensors SET kind = 'personal' WHERE kind = 'pending'")
            connection.execute("DELETE FROM tensors WHERE kind = 'pending'")
            self._set({_PENDING: ""})

    def stage(
        self,
        token: str,
        pending: Mapping[str, Arrays],
        shared: Mapping[str | None, Arrays],
        *,
        sent: Packet,
        steps: Sequence[str],
        kind: str,
    ) -> None:
        """Store the results of a round by user (None: all) and the outbox entry, in one transaction."""
        ids = {row["name"]: int(row["id"]) for row in self._store.rows("SELECT id, name FROM users")}
        with self._store.writing() as connection:
            for user, tensors in pending.items():
                put_tensors(connection, "pending", ids[user], tensors)
            for owner, tensors in shared.items():
                put_tensors(connection, "shared", None if owner is None else ids[owner], tensors)
            self._set({_PENDING: token})
            self.record(sent, steps, kind)

    def record(self, sent: Packet, steps: Sequence[str], kind: str) -> None:
        """Record a message in the outbox before it is sent."""
        shapes = {name: list(values.shape) for name, values in sent.arrays.items()}
        shapes |= {f: [len(v)] for f, v in sent.fields.items() if isinstance(v, list)}
        round_ = sent.fields.get("round")
        self.device.sent(
            shapes,
            sent.to_bytes(),
            round_=-1 if round_ is None else round_,
            steps=steps,
            kind=kind,
            federation=str(sent.fields.get("federation", self.federation)),
        )

    def tell_newest(self, version: int) -> None:
        """Remember which catalogue the server has, for `solera device status`."""
        if self._settings.get(NEWEST) != str(version):
            with self._store.writing():
                self._set({NEWEST: str(version)})

    def _set(self, values: Mapping[str, str]) -> None:
        self._store.connection.executemany(
            "INSERT INTO settings VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2", values.items()
        )
        self._settings |= values
