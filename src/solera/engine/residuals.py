"""What the coding of uploads left out, on the clients, for their next uploads (error feedback)."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.spec import Leaf, Params
from solera.core.upload import Upload
from solera.engine.row_store import RowStore

PREFIX = "residual/"
_ROWS = 1 << 31  # above every item number, for keys of (client, row)


class StoredResiduals:
    """The residuals of all clients.

    A client keeps those of the rows of its last upload. A row that it does not touch the next time is
    dropped: its own items come again in every round, drawn negatives hardly ever do.
    """

    def __init__(self, leaves: tuple[Leaf, ...], n_clients: int, device: torch.device) -> None:
        self._n_clients, self._device = n_clients, device
        self._per_item = {leaf.sent_as: leaf.per_item for leaf in leaves if leaf.sent_as}
        self._stores = {name: RowStore(n_clients, device) for name in self._per_item}

    def added(self, clients: Ints, upload: Upload) -> Upload:
        """The uploads, each with what is left of the same rows."""
        who = torch.from_numpy(clients).long()
        changes = {}
        for name, change in upload.changes.items():
            rows, counts = self._places(name, upload)
            left = self._stores[name].overlay(who, rows, counts, torch.zeros_like(change), _ROWS)
            changes[name] = change + left
        return Upload(upload.rows, upload.row_counts, changes)

    def keep(self, clients: Ints, whole: Upload, sent: Upload) -> None:
        """Keep the difference between the uploads and what the server decodes."""
        who = torch.from_numpy(clients).long()
        for name, change in whole.changes.items():
            rows, counts = self._places(name, whole)
            left = change.clone()
            left[torch.searchsorted(_keys(rows, counts), _keys(*self._places(name, sent)))] -= sent.changes[
                name
            ]
            self._stores[name].put(who, rows, counts, left)

    def _places(self, name: str, upload: Upload) -> tuple[Tensor, Tensor]:
        """Rows and their number per client. A leaf that is not per item has one row."""
        if self._per_item[name]:
            return upload.rows, upload.row_counts
        ones = torch.ones(upload.n_clients, dtype=torch.int64)
        return torch.zeros(upload.n_clients, dtype=torch.int64, device=upload.rows.device), ones

    def copy(self) -> StoredResiduals:
        """A copy that is unaffected by later changes of this one."""
        twin = copy(self)
        twin._stores = {name: store.copy() for name, store in self._stores.items()}
        return twin

    def tensors(self) -> Params:
        """Everything as named tensors, ready to be saved."""
        return {
            f"{PREFIX}{name}/{part}": value
            for name, store in self._stores.items()
            for part, value in store.tensors().items()
        }

    def restore(self, tensors: Params) -> None:
        """Restore the output of `tensors`."""
        for name in self._stores:
            clients, counts = (tensors[f"{PREFIX}{name}/{part}"].cpu() for part in ("clients", "counts"))
            self._stores[name] = RowStore(self._n_clients, self._device)
            if len(clients):
                items, values = (
                    tensors[f"{PREFIX}{name}/{part}"].to(self._device) for part in ("items", "values")
                )
                self._stores[name].put(clients, items, counts, values)


def _keys(rows: Tensor, counts: Tensor) -> Tensor:
    return torch.arange(len(counts)).repeat_interleave(counts).to(rows.device) * _ROWS + rows
