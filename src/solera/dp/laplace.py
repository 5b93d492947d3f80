"""The papers' setting: Laplace noise of a fixed scale on every number of the whole table, without clipping.

The papers (PFedRec's Eq. 12, PFedCLR and FedEM after it) add noise to the tables that clients send, and so to
the rows of items that a client did not train on. An upload then has all rows.

It guarantees nothing: an upload may have any length, so for any noise there are two uploads that it does not
make indistinguishable. If every upload were clipped to length c in L1, a round would be private with
ε = 2c / scale for a user's own upload.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from solera.core.leaf import Leaf, Params
from solera.core.protection import RoundStep, Step
from solera.core.randomness import Bits, Purpose, client_keys, draws, mix
from solera.core.types import Ints
from solera.core.upload import Upload
from solera.dp.settings import PaperLaplace


@dataclass(frozen=True)
class LaplaceNoise(Step):
    """Laplace noise as a protection step. It only has a client half, the same in every engine."""

    noise: PaperLaplace
    seed: int
    n_items: int
    dense: bool = True

    def begin(self, round_: int, leaves: tuple[Leaf, ...], memory: Params) -> LaplaceRound:
        return LaplaceRound(self, round_, leaves)

    def upload(self, upload: Upload, leaves: tuple[Leaf, ...], keys: Bits) -> Upload:
        """Whole tables with noise on every number. They do not show which rows a client touched.

        `keys` are the keys of the clients' random streams.
        """
        n, device, n_items = upload.n_clients, upload.rows.device, self.n_items
        owner = torch.arange(n).repeat_interleave(upload.row_counts).to(device)
        touched = owner * n_items + upload.rows
        changes = {}
        for place, leaf in enumerate(leaf for leaf in leaves if leaf.sent_as):
            change = upload.changes[leaf.sent_as]
            if leaf.per_item:
                whole = change.new_zeros(n * n_items, *leaf.shape)
                change = whole.index_copy_(0, touched, change)
            changes[leaf.sent_as] = self._noisy(change.view(n, -1), keys, place).view(change.shape)
        rows = torch.arange(n_items, device=device).repeat(n)
        return Upload(rows, torch.full_like(upload.row_counts, n_items), changes)

    def tables(self, tables: Tensor, leaves: tuple[Leaf, ...], leaf: str, keys: Bits) -> Tensor:
        """Tables that clients keep, with the noise of the round's upload on every number (FedEM's Eq. 36)."""
        place = [each.name for each in leaves if each.sent_as].index(leaf)
        return self._noisy(tables.flatten(1), keys, place).view(tables.shape)

    def _noisy(self, values: Tensor, keys: Bits, place: int) -> Tensor:
        """One client per row, with the noise of the leaf at this place among those that are sent."""
        streams, noisy = mix(keys + np.uint64(place)), values.clone()
        for client, row in enumerate(noisy):
            row.add_(self._noise(streams[client : client + 1], len(row)).to(row))
        return noisy

    def _noise(self, key: Bits, count: int) -> Tensor:
        """The noise of one client on one leaf. Client by client, because whole tables are large."""
        unit = ((draws(key, np.array([count])) >> np.uint64(11)) + 0.5) * 2.0**-53 - 0.5
        return torch.from_numpy(-self.noise.scale * np.sign(unit) * np.log1p(-2 * np.abs(unit)))


@dataclass(frozen=True)
class LaplaceRound(RoundStep):
    """Noise on the uploads of one round."""

    of: LaplaceNoise
    round: int
    leaves: tuple[Leaf, ...]

    def send(self, clients: Ints, upload: Upload) -> Upload:
        """Uploads with noise on every number of every row."""
        return self.of.upload(upload, self.leaves, self._keys(clients))

    def send_kept(self, clients: Ints, leaf: str, tables: Tensor) -> Tensor:
        """Whole tables with the same noise: the papers send tables, not what changed in them."""
        return self.of.tables(tables, self.leaves, leaf, self._keys(clients))

    def _keys(self, clients: Ints) -> Bits:
        return client_keys(self.of.seed, Purpose.NOISE, self.round, clients)
