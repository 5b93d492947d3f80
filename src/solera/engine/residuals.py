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
    dropped: its own items come again in every round, drawn negatives hardly ever do. Nothing is kept of a
    network: its codings leave out little, and it may be larger than all of a client's rows.
    """

    def __init__(self, leaves: tuple[Leaf, ...], n_clients: int, device: torch.device) -> None:
        self._n_clients, self._device = n_clients, device
        names = [leaf.sent_as for leaf in leaves if leaf.sent_as and leaf.per_item]
        self._stores = {name: RowStore(n_clients, device) for name in names}

    def added(self, clients: Ints, upload: Upload) -> Upload:
        """The uploads, each with what is left of the same rows."""
        who = torch.from_numpy(clients).long()
        changes = dict(upload.changes)
        for name, store in self._stores.items():
            nothing = torch.zeros_like(changes[name])
            left = store.overlay(who, upload.rows, upload.row_counts, nothing, _ROWS)
            changes[name] = changes[name] + left
        return Upload(upload.rows, upload.row_counts, changes)

    def keep(self, clients: Ints, whole: Upload, sent: Upload) -> None:
        """Keep the difference between the uploads and what the server decodes."""
        who = torch.from_numpy(clients).long()
        places = torch.searchsorted(_keys(whole.rows, whole.row_counts), _keys(sent.rows, sent.row_counts))
        for name, store in self._stores.items():
            left = whole.changes[name].clone()
            left[places] -= sent.changes[name]
            store.put(who, whole.rows, whole.row_counts, left)

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
