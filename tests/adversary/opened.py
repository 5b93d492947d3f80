"""What a server that lies does with the sums it opens: it keeps them, and reads histories from them."""

from __future__ import annotations

import numpy as np
import pytest

from one_process import ITEMS, Local
from solera.federation.common.protocol import Reason, RefusalError
from solera.federation.server import masked_round as secure_round

Values = dict[str, np.ndarray]


def keep_opened(monkeypatch: pytest.MonkeyPatch) -> list[Values]:
    """All sums that are opened from now on; the server takes none of them in."""
    opened: list[Values] = []

    def conclude(self: secure_round.MaskedRound) -> None:
        for session in self._sessions:
            opened.append({name: each.copy() for name, each in session.sum.values.items()})
        raise RefusalError(Reason.MEMBERS, "kept")

    monkeypatch.setattr(secure_round.MaskedRound, "conclude", conclude)
    return opened


def history_in(values: Values) -> list[int]:
    """The items that one user's upload shows to be liked: those whose rows move the other way."""
    change = values["change/items"].reshape(ITEMS, -1)
    _, _, directions = np.linalg.svd(change, full_matrices=False)
    along = change @ directions[0]
    moved = np.flatnonzero(np.abs(along) > 1e-4)
    if (along[moved] > 0).sum() > len(moved) / 2:
        along = -along
    return sorted(int(item) for item in moved if along[item] > 0)


def declined(world: Local) -> list[str]:
    return [answer.fields["declined"] for *_, answer in world.sent if "declined" in answer.fields]
