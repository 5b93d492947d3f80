"""One rank's part of a federation: its own clients, and the server, which is the same on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.download import Download
from solera.core.fixed_point import FixedPoint
from solera.core.method import Method
from solera.core.protection import Chain, RoundChain
from solera.core.spec import Params
from solera.core.tensor_files import Writable
from solera.core.upload import Totals
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.choosing import choose
from solera.engine.exact_totals import ExactTotals
from solera.engine.local_training import LocalTraining
from solera.engine.ranks import SHARDS, Ranks, Share
from solera.engine.row_store import IN_MEMORY, STORED, RowStore
from solera.engine.server import Server
from solera.engine.simulation import Simulation
from solera.engine.store import stored_rows
from solera.engine.tailoring import SharedTailor

_UNPROTECTED = Chain()
_CLIENTS = ""  # no parameter has this name


class DistributedSimulation(Simulation):
    """The clients of one rank. All ranks call every method together, in the same order."""

    adds_up = False  # sums of batches depend on who is in them, if only by rounding

    def __init__(
        self,
        method: Method,
        data: ClientData,
        train: LocalTraining,
        ranks: Ranks,
        *,
        seed: int,
        device: torch.device,
        dtype: torch.dtype | None = None,
        protection: Chain = _UNPROTECTED,
        download: Download | None = None,
        rows_in_memory: int = IN_MEMORY,
    ) -> None:
        """`data` is of the whole federation. Of `protection`, only codings are possible."""
        self.share = share = Share.of(ranks, data.train.lengths)
        self.federation_size = data.n_clients
        power = method.popularity_power
        data = data.by_popularity(power) if power else data
        own = ClientData(
            data.train.take(share.clients),
            data.excluded.take(share.clients),
            data.n_items,
            data.mass,
            share.clients,
        )
        super().__init__(
            method,
            own,
            train,
            seed=seed,
            device=device,
            dtype=dtype,
            protection=protection,
            download=download,
            rows_in_memory=rows_in_memory,
        )
        self.tailor = SharedTailor(share)

    def choose(self, round_: int) -> Ints:
        """The round's clients in the whole federation."""
        return choose(self.share.able, self.method.config.clients_per_round, self.seed, round_)

    def _totals(self, clients: int, masked: FixedPoint | None) -> Totals:
        """Sums that are the same for any number of ranks."""
        self._exact = ExactTotals(self.method, self.data.n_items, self.state.device, clients)
        return self._exact

    def _collect(
        self, server: Server, round_: int, clients: Ints, protection: RoundChain
    ) -> tuple[float, int]:
        """Train the own clients shard by shard, and add what all ranks have."""
        share = self.share
        mine = np.flatnonzero(np.isin(share.clients, clients, assume_unique=True))
        told = torch.zeros(2, SHARDS, dtype=torch.float64)  # loss and bytes, each shard in its own place
        for shard, some in _by_shard(mine, share.shards[mine]):
            told[:, shard] = torch.tensor(super()._collect(server, round_, some, protection))
            self._exact.end_shard()
        server.reduce(share.ranks.add)
        share.ranks.add(told)
        return float(told[0].sum()), int(told[1].sum())

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for own clients, given by their number in the federation."""
        own = known.take(self.share.clients)
        return lambda users: self.scores(self.share.places(users), own)

    def restore(self, shared: Params, personal: Params) -> None:
        """Continue from the saved state of the whole federation."""
        own = torch.from_numpy(self.share.clients)
        tailored = {name: shared[name][own] for name in self.method.tailored}
        super().restore(shared | tailored, _of_own(personal, self.share.clients))

    def gathered(self, shared: Params, personal: Params) -> tuple[Writable, Params]:
        """The tensors of the whole federation on the first rank, and nothing on the others."""
        tailored = {name: shared[name] for name in self.method.tailored}
        own = {_CLIENTS: torch.from_numpy(self.share.clients)}
        parts = self.share.ranks.gathered_by_first(own | personal | tailored)
        if not parts:
            return {}, {}
        found = _joined(parts)
        return shared | {name: found.pop(name) for name in tailored}, found


def _by_shard(clients: Ints, shards: Ints) -> Iterator[tuple[int, Ints]]:
    for shard in np.unique(shards).tolist():
        yield shard, clients[shards == shard]


def _of_own(personal: Params, own: Ints) -> Params:
    """The part of a federation's personal tensors that belongs to some clients."""
    index, stored = torch.from_numpy(own), stored_rows(personal)
    found = {name: value[index] for name, value in personal.items() if name.rpartition("/")[0] not in stored}
    for name in stored:
        clients, counts = personal[f"{name}/clients"], personal[f"{name}/counts"]
        mine = torch.isin(clients, index)
        found[f"{name}/clients"] = torch.searchsorted(index, clients[mine])
        found[f"{name}/counts"] = counts[mine]
        if f"{name}/items" in personal:
            rows = mine.repeat_interleave(counts)
            found |= {f"{name}/{part}": personal[f"{name}/{part}"][rows] for part in ("items", "values")}
    return found


def _joined(parts: list[Params]) -> Params:
    """Personal tensors of all ranks as those of one federation."""
    numbers = [personal[_CLIENTS] for personal in parts]
    order = torch.argsort(torch.cat(numbers))
    stored = stored_rows(parts[0])
    found = {
        name: torch.cat([personal[name] for personal in parts])[order]
        for name in parts[0]
        if name != _CLIENTS and name.rpartition("/")[0] not in stored
    }
    for name in stored:
        rows = RowStore(len(order), torch.device("cpu"))
        for own, personal in zip(numbers, parts, strict=True):
            if f"{name}/items" in personal:
                clients, counts, items, values = (personal[f"{name}/{part}"] for part in STORED)
                rows.put(own[clients], items, counts, values)
        found |= {f"{name}/{part}": value for part, value in rows.tensors().items()}
    return found
