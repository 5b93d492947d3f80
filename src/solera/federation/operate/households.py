"""Devices with the histories of a data set's users, and their evaluation on held-out items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import NEIGHBOURS
from solera.core.errors import DataError
from solera.core.types import Ints
from solera.data.interactions import Interactions, Split, history
from solera.data.ragged import Ragged
from solera.device.bundle import Bundle
from solera.device.dates import DAY
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.model import Model, method_of
from solera.device.policy import Policy
from solera.device.tensors import Arrays
from solera.engine import State
from solera.evaluate import Evaluation, Evaluator, split

_SOURCE = "data set"


@dataclass(frozen=True, eq=False)
class Households:
    """Folders of devices, the users on each, and the split that says what they know and what is asked."""

    folders: list[Path]
    users: list[Ints]  # on each device, by their numbers in the data set
    split: Split

    @classmethod
    def choose(cls, data: Interactions, folders: Sequence[Path], users: int) -> Households:
        """Under `strict`: every user's last item, the test item, is held back, and the rest is known."""
        divided = split(data, "strict")
        asked = np.flatnonzero(divided.test.lengths)
        if len(asked) < users * len(folders):
            raise DataError(
                f"{data.name!r} has {len(asked)} users with an item to hold back,"
                f" not {len(folders)} × {users}",
                "give fewer --nodes or --users",
            )
        here: list[Ints] = np.split(asked[: users * len(folders)], len(folders))
        return cls(list(folders), here, divided)

    def name(self, user: int) -> str:
        """Name of a user on the device."""
        return str(self.split.data.user_map.id(user))

    def knows(self) -> Ragged:
        """All items but the one held back, oldest first, of every user of the data set."""
        return history(self.split, "test")

    def held_back(self, user: int) -> int:
        """The user's held-out item."""
        return int(self.split.test.row(user)[0])

    def create(self, bundle: Bundle, policy: Policy | None = None) -> None:
        """Make the devices, with all their users know. They agree to whichever federation asks first."""
        ids, known = self.split.data.item_map.ids, self.knows()
        for folder, users in zip(self.folders, self.users, strict=True):
            device = Device.create(folder, bundle)
            for user in users.tolist():
                items, days = known.row(user).tolist(), known.days_of(user)
                times = range(len(items)) if days is None else np.rint(days * DAY).astype(int).tolist()
                rows = [(str(ids[item]), time) for item, time in zip(items, times, strict=True)]
                device.add_all(rows, self.name(user), _SOURCE)
            if policy is not None:
                policy.write(device.store)
            Ledger(device.store).join_next()
            device.close()

    def evaluate(self, start: tuple[Arrays, Arrays] | None = None) -> Evaluation:
        """Rank the held-out items with the parameters in the folders, or with initial parameters."""
        devices = {
            user: device
            for folder, users in zip(self.folders, self.users, strict=True)
            for device in [Device.open(folder)]
            for user in users.tolist()
        }
        known = self.knows()

        def of_user(user: int) -> Tensor:
            device, name = devices[user], self.name(user)
            shared, own = start or (device.shared(name), device.kept(name))
            return Model(device.bundle, shared, own).scores(known.row(user), known.days_of(user))

        try:
            return Evaluator(self._asked(), seed=0).test(
                lambda users: torch.stack([of_user(user) for user in users.tolist()])
            )
        finally:
            for device in set(devices.values()):
                device.close()

    def _asked(self) -> Split:
        """The split, with nothing asked of users who are on no device."""
        asked = np.isin(np.arange(len(self.split.test)), np.concatenate(self.users))
        test = self.split.test
        kept = Ragged.of_lengths(np.where(asked, test.lengths, 0), test.values[asked[test.rows]])
        return replace(self.split, test=kept)


def start_of(bundle: Bundle) -> tuple[Arrays, Arrays]:
    """What a user has before the first round: the shared parameters, and own ones."""
    method, model = method_of(bundle), Model(bundle)
    if method.one_round:
        shapes = method.shared_shapes(bundle.manifest.items)
        return {
            name: np.zeros(v, np.int32 if name == NEIGHBOURS else np.float32) for name, v in shapes.items()
        }, {}
    state = State.initial(
        method,
        1,
        bundle.manifest.items,
        seed=bundle.manifest.seed,
        device=torch.device("cpu"),
        dtype=model.dtype,
    )
    shared = {name: v[0] if name in method.tailored else v for name, v in state.shared.items()}
    own = state.personal.of_client(0)
    return {n: v.numpy() for n, v in shared.items()}, {n: v.numpy() for n, v in own.items()}
