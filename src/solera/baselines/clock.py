"""When the items of a history were met and the next one is asked for, as a network with intervals needs it.

A state is asked for at the time of the last item it has seen. With `request_time`, it is asked for at the
time of the request instead: in training that of the item to predict, in evaluation that of the held-out one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from solera.core.errors import DataError
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged


class Clock:
    """The times of a split's interactions."""

    def __init__(self, split: Split, *, request_time: bool) -> None:
        data = split.data
        if data.times is None or not data.one_clock:
            raise DataError(
                f"{data.name!r} has no times, only the order of each user's rows",
                "use -o time=none, or a data set with times",
            )
        keys = data.users.astype(np.int64) * data.n_items + data.items
        order = np.argsort(keys, kind="stable")  # the first of a repeated pair comes first
        self.request_time = request_time
        self._split, self._keys, self._times = split, keys[order], data.times[order]

    def times(self, users: Ints, histories: Ragged) -> Tensor:
        """The time of every item, where row r of the histories belongs to users[r]; and one time more."""
        found = self._at(np.repeat(users, histories.lengths), histories.values)
        return torch.from_numpy(np.append(found, 0))

    def requests(self, users: Ints, histories: Ragged) -> Tensor:
        """The time of the held-out item that follows each history; 0 if there is none.

        After a history that lacks the validation item, it is the time of that item.
        """
        train, validation, test = (
            part.take(users) for part in (self._split.train, self._split.validation, self._split.test)
        )
        follows = np.where(histories.lengths > train.lengths, validation.lengths, 0)
        held = validation.concat(test)
        found = np.zeros(len(users), dtype=np.int64)
        some = follows < held.lengths
        found[some] = self._at(users[some], held.values[(held.offsets[:-1] + follows)[some]])
        return torch.from_numpy(found)

    def in_training(self, times: Tensor) -> dict[str, Tensor]:
        """Arguments of `states` for windows, all of whose items but the last are read."""
        places = torch.cat([times[:, :1], times[:, :-1]], 1)
        return {"times": places, "asked": times if self.request_time else places}

    def in_service(self, times: Tensor, lengths: Tensor, requests: Tensor) -> dict[str, Tensor]:
        """Arguments of `states` for histories, all of whose items are read, padded to the longest."""
        asked = torch.cat([times, requests[:, None]], 1).scatter(1, lengths[:, None], requests[:, None])
        begin = torch.where(lengths > 0, asked[:, 0], requests)
        places = torch.cat([begin[:, None], times], 1)
        return {"times": places, "asked": asked if self.request_time else places}

    def _at(self, users: Ints, items: Ints) -> Ints:
        keys = users.astype(np.int64) * self._split.data.n_items + items
        found: Ints = self._times[np.searchsorted(self._keys, keys)]
        return found
