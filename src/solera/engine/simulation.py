"""A federation in one process: server state, clients' state, and the round that connects them.

Engines (`reference` or `block`) implement how a client trains; everything else is here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from solera.core.context import RoundContext
from solera.core.errors import DivergedError
from solera.core.fixed_point import FixedPoint, check_summable, lengths
from solera.core.leaf import MEMORY, Home, Leaf, Params
from solera.core.method import Method
from solera.core.protection import Chain, Download, RoundChain
from solera.core.randomness import Purpose, generator
from solera.core.types import Ints
from solera.core.upload import Upload, upload_bytes
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.local_training import ClientResult, LocalTraining, Task
from solera.engine.ranks import Ranks
from solera.engine.row_store import IN_MEMORY
from solera.engine.scoring import all_scores
from solera.engine.server import Server, derived
from solera.engine.shares import share_of
from solera.engine.store import State, StoredResiduals, TouchedRows


def choose(able: Ints, share: float, seed: int, round_: int) -> Ints:
    """Draw a fraction of the clients (up to 1) or a number of them (above 1), ascending and reproducible."""
    count = how_many(able, share)
    if count == len(able):
        return able
    return np.sort(generator(seed, Purpose.CLIENTS, round_).choice(able, count, replace=False))


def how_many(able: Ints, share: float) -> int:
    """The number of clients in a round."""
    return max(1, round(share * len(able))) if share <= 1 else min(len(able), round(share))


_UNPROTECTED = Chain()


@dataclass(frozen=True)
class RoundResult:
    """The report of one round."""

    round: int
    clients: int
    loss: float
    bytes_up: float  # mean per client
    bytes_down: float
    seconds_on_server: float = field(default=0.0, compare=False)


class Observer(Protocol):
    """A callback object that observes a round without changing it."""

    def uploaded(self, clients: Ints, upload: Upload) -> None:
        """Receive the uploads of some of the round's clients."""
        ...

    def mixed(self, clients: Ints, weights: Tensor) -> None:
        """Receive the mixing weights [c, c], see `Aggregate.mixing`: row u is for clients[u]."""
        ...


class Simulation:
    """All clients and the server of one federation."""

    def __init__(
        self,
        method: Method,
        data: ClientData,
        train: LocalTraining,
        *,
        seed: int,
        device: torch.device,
        dtype: torch.dtype | None = None,
        protection: Chain = _UNPROTECTED,
        download: Download | None = None,
        rows_in_memory: int = IN_MEMORY,
        ranks: Ranks | None = None,
    ) -> None:
        """With `ranks`, this process has only some of the clients in `data`.

        Uploads go through the chain of `protection` on their way to the server.

        With `download`, clients train and serve from what they decode of the shared tables. The server keeps
        the tables in full and applies the clients' changes to them. Rows that clients hold are in mapped
        files if they take more than `rows_in_memory` bytes.
        """
        if protection.masked:
            check_summable(method)
        self.protection = protection
        power = method.popularity_power
        self.share = share_of(ranks, data.train.lengths)
        self.data = self.share.data(data.by_popularity(power) if power and data.mass is None else data)
        self.method, self.train, self.seed = method, train, seed
        self.heaviest: float | None = None  # see `Server`
        self.observer: Observer | None = None
        self._drawn: tuple[int, Ints] | None = None  # a round and its clients
        dtype = dtype or torch.get_default_dtype()
        self.state = State.initial(
            method,
            self.data.n_clients,
            data.n_items,
            seed=seed,
            device=device,
            dtype=dtype,
            rows_in_memory=rows_in_memory,
            federation=self.share.size,
        )
        self._download = download
        self._received: tuple[Params, Params] | None = None  # the shared leaves, and as they are decoded
        if remembered := protection.memory():
            self.state = replace(self.state, memory=self.state.memory | remembered)
        if protection.coding:
            self.state.personal.residuals = StoredResiduals(method.leaves, self.data.n_clients, device)

    def run_round(self, round_: int) -> RoundResult:
        """Sample clients, train them, aggregate their uploads."""
        method, state = self.method, self.state
        clients = self.choose(round_)
        masked = (
            FixedPoint.of(method, self.data.n_items, places=max(1, len(clients)))
            if self.protection.masked
            else None
        )
        protection = self.protection.begin(round_, method.leaves, state.memory, state.personal.residuals)
        totals = self.share.totals(method, self.data.n_items, state.device, len(clients), masked)
        server = Server(
            method,
            state.shared | state.memory,
            self.data.n_items,
            state.device,
            totals=totals,
            heaviest=self.heaviest,
            protection=protection,
            share=self.share,
            on_mixing=self.observer.mixed if self.observer else None,
        )
        losses, sent = self.share.collect(
            totals, clients, lambda some: self._collect(server, round_, some, protection)
        )
        if not np.isfinite(losses):
            raise DivergedError(
                f"the training loss of {method.name!r} is not finite in round {round_ + 1}",
                "lower the learning rate with -o learning_rate=…",
            )
        begin = time.perf_counter()
        self.state = state.of_server(server.conclude(state.personal.tables, self._context(round_)))
        seconds = time.perf_counter() - begin
        n = max(1, len(clients))
        sends = (leaf for leaf in method.leaves if leaf.sent_as)
        up = self._dense(sends) if self.protection.dense else sent / n
        if masked:
            up = sum(lengths(method, self.data.n_items).values()) * masked.bits / 8
        return RoundResult(round_, len(clients), losses / n, up, self._bytes_down(), seconds)

    def _bytes_down(self) -> float:
        if self._download:
            return self._download.bytes_per_client(self.data.n_items)
        return self._dense(leaf for leaf in self.method.select(home=Home.SHARED) if not leaf.derived_from)

    def _collect(
        self, server: Server, round_: int, clients: Ints, protection: RoundChain
    ) -> tuple[float, int]:
        """Train clients and give their uploads to the server. Returns the sum of their losses, and bytes."""
        losses, sent = 0.0, 0
        for group in self.train.sums(self.task(round_), clients) if self.adds_up else ():
            server.merge(group.sums)
            losses += float(group.loss.sum())
            sent += int(upload_bytes(group.row_counts, self.method.leaves).sum())
        if sent:
            return losses, sent
        for result in self.train_clients(round_, clients, protection):
            sizes = self.data.train.lengths[result.clients] if result.claims is None else result.claims
            server.add(result.clients, sizes, result.upload)
            if self.observer:
                self.observer.uploaded(result.clients, result.upload)
            losses += float(result.loss.sum())
            sent += int(protection.bytes_per_client(result.upload, self.method.leaves).sum())
        return losses, sent

    @property
    def adds_up(self) -> bool:
        """Whether nobody needs what single clients send."""
        return self.share.adds_up and self.protection == _UNPROTECTED and self.observer is None

    def _dense(self, leaves: Iterable[Leaf]) -> float:
        """Size in bytes of whole leaves."""
        return 4 * sum(leaf.size * (self.data.n_items if leaf.per_item else 1) for leaf in leaves)

    def train_clients(
        self, round_: int, clients: Ints, protection: RoundChain | None = None
    ) -> Iterator[ClientResult]:
        """The clients' half of a round: training, then the client half of the protection, if given.

        Personal leaves stay with the clients and are not protected.
        """
        if not len(clients):  # possible by chance with Poisson sampling
            return
        for result in self.train(self.task(round_), clients):
            self._keep(result)
            yield (
                replace(result, upload=protection.send(result.clients, result.upload))
                if protection
                else result
            )

    def task(self, round_: int) -> Task:
        """The input of local training in a round."""
        received = replace(self.state, shared=self.received)
        return Task(self.method, self.data, received, self._context(round_), self.seed)

    @property
    def received(self) -> Params:
        """The shared leaves as clients decode them. The last answer is kept for repeated questions."""
        shared = self.state.shared
        if not self._download:
            return shared
        if self._received is None or self._received[0] is not shared:
            seen = self._download.received(shared)
            self._received = shared, seen | derived(self.method, seen)
        return self._received[1]

    def _context(self, round_: int) -> RoundContext:
        return self.method.context(round_, self.data.n_items, self.seed)

    def choose(self, round_: int) -> Ints:
        """The round's clients, drawn from those with training items. Repeated calls give the same clients."""
        able = self.share.able(self.data.train.lengths)
        drawn = self.protection.choose(able, round_)
        if drawn is not None:
            return drawn
        share, aggregate = self.method.config.clients_per_round, self.method.aggregate
        if aggregate.held:
            if self._drawn is None or self._drawn[0] != round_:
                users = self.state.shared[aggregate.held][torch.from_numpy(able).to(self.state.device)]
                places = aggregate.draw(users, how_many(able, share), self._context(round_))
                self._drawn = round_, able[places.cpu().numpy()]
            return self._drawn[1]
        return choose(able, share, self.seed, round_)

    def scores(self, clients: Ints, known: Ragged | None = None) -> Tensor:
        """Scores [len(clients), n_items] that the given clients are served with.

        `known` are the histories of all clients, for methods that score by history. By default these are the
        training items.
        """
        more: Params = {}
        with torch.no_grad():
            if self.method.scorer.learns_from != "items":
                more[MEMORY] = self._memory((known or self.data.train).take(clients))
            return all_scores(self.method, self.received, self.state.personal, clients, more)

    def held(self, clients: Ints) -> Params:
        """The leaves on these clients: personal ones, and shared ones as downloaded or kept."""
        personal = self.state.personal
        index = torch.from_numpy(clients).to(self.state.device)
        params = {name: values[index] for name, values in personal.whole.items()}
        for name, values in self.received.items():
            params[name] = values[index] if name in self.method.tailored else values
        for name in (*personal.tables, *personal.rows):
            params[name] = personal.table(name, clients, params.get(name))
        return params

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for clients with these histories, oldest first.

        Most methods ignore the histories, because a client's past is in its parameters.
        """
        own = self.share.histories(known)
        return lambda users: self.scores(self.share.places(users), own)

    def _memory(self, histories: Ragged) -> Tensor:
        items = torch.from_numpy(histories.values).to(self.state.device)
        return self.method.scorer.remember(self.received, items, torch.from_numpy(histories.lengths))

    def restore(self, shared: Params, personal: Params) -> None:
        """Continue from a state saved as `state.tensors()`, or that of the whole federation."""
        shared, personal = self.share.restored(personal, shared, self.method.tailored)
        self.state.personal.restore(personal)
        moved = {name: value.to(self.state.device) for name, value in shared.items()}
        self.state = self.state.of_server(moved).copy()

    def _keep(self, result: ClientResult) -> None:
        personal = self.state.personal
        index = torch.from_numpy(result.clients).to(self.state.device)
        for name in personal.whole:
            personal.whole[name][index] = result.params[name]
        group = TouchedRows(result.clients, result.upload.rows, result.upload.row_counts)
        fading = {leaf.name: leaf.fades_with for leaf in self.method.leaves if leaf.fades_with}
        for name in (*personal.tables, *personal.rows):
            factors = result.params[fading[name]] if name in fading else None
            personal.put(name, group, result.params[name], factors)
