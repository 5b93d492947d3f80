"""The server's half of a round: compute the next shared state from the clients' changes.

Some methods have a table for every client, mixed from all clients' tables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from solera.core.context import RoundContext
from solera.core.leaf import Home, Params
from solera.core.method import Method
from solera.core.parts import Aggregate
from solera.core.protection import RoundChain
from solera.core.types import Ints
from solera.core.upload import Sums, Totals, Upload
from solera.engine.shares import ClientTables, Everybody

_UNPROTECTED = RoundChain()
_ALONE = Everybody(np.zeros(0, dtype=np.int64))
_NOBODY = np.zeros(0, dtype=np.int64)


class Server:
    """The server's data in one round.

    Most methods only need sums over clients. An aggregate that tailors tables also sees the single uploads,
    and one that sifts them sees only these.

    Clients report their own number of training items. The server limits it to `heaviest`, by default the
    most that the method allows; infinity shows the effect of accepting any value.
    """

    def __init__(
        self,
        method: Method,
        shared: Params,
        n_items: int,
        device: torch.device,
        *,
        totals: Totals | None = None,
        heaviest: float | None = None,
        protection: RoundChain = _UNPROTECTED,
        share: Everybody = _ALONE,
        on_mixing: Callable[[Ints, Tensor], None] | None = None,
    ) -> None:
        """`shared` includes the aggregate's state.

        `totals` are empty sums of another kind, for example under masks. Sums go through the server half of
        `protection`.
        `share` are the clients of this process; `on_mixing` receives the clients and the mixing weights.
        """
        self._share = share
        self._on_mixing = on_mixing
        self._protection = protection
        self._method, self._shared = method, shared
        self._heaviest = method.heaviest(n_items) if heaviest is None else heaviest
        self._totals = totals or Totals(method.added_up, n_items, device)
        self._clients: list[Ints] = []
        self._sizes: list[Ints] = []
        self._single: list[tuple[Ints, Upload]] = []

    def add(self, clients: Ints, sizes: Ints, upload: Upload) -> None:
        """Add the uploads of some clients, who report `sizes` training items.

        The client half of the protection has been applied.
        """
        sizes = np.minimum(sizes, self._heaviest).astype(np.int64)
        self._clients.append(clients)
        self._sizes.append(sizes)
        if self._method.aggregate.sifts:
            self._single.append((clients, upload))
            return
        alike = self._protection.counts_alike
        self._totals.add(upload, None if alike else self._weights(sizes, upload.rows.device))
        if self._method.aggregate.target and not fed_by(self._method):
            self._single.append((clients, upload))

    def merge(self, sums: Sums) -> None:
        """Add the sum of several clients. Not possible if single uploads are needed."""
        self._totals.merge(self._protection.take_sums(sums))

    def sums(self) -> Sums:
        """What has been added so far."""
        return self._totals.sums()

    def conclude(self, held: Params, context: RoundContext) -> Params:
        """The next shared state, including memory. Tailored tables change in place, because they are large.

        `held` are the tables [clients, items, d] that the clients keep, by the name of their leaf.
        """
        aggregate = self._method.aggregate
        common = {name: v for name, v in self._shared.items() if name not in self._method.tailored}
        if aggregate.target:
            # Mix the clients' own tables first: they may depend on what `combine` is about to replace.
            clients = np.concatenate([*self._clients, _NOBODY])
            order = np.argsort(clients)
            clients, sizes = clients[order], np.concatenate([*self._sizes, _NOBODY])[order]
            tables = self._tables(aggregate, clients, held)
            sent = ClientTables(clients, torch.from_numpy(sizes).to(tables.device).double(), tables)
            mixing = self._share.mix(aggregate, sent, self._shared[aggregate.target], context)
            if self._on_mixing:
                self._on_mixing(clients, mixing)
            if self._method.told:
                self._share.tell(aggregate, clients, self._shared[self._method.told], context)
        if aggregate.sifts:
            self._sift(aggregate)
        if self._protection.given_up:
            return self._shared
        combined = aggregate.combine(common, self._protection.release(self._totals), context)
        shared = self._shared | combined | self._protection.memory()
        if aggregate.held and self._single:
            shared[aggregate.held] = self._users(aggregate, context)
        return shared | derived(self._method, shared)

    def _sift(self, aggregate: Aggregate) -> None:
        """Sift all uploads, ordered by client number, independent of the order of arrival."""
        order = np.argsort(np.concatenate(self._clients))
        upload = Upload.joined([upload for _, upload in self._single])
        upload = upload.take(torch.from_numpy(order), self._method.leaves)
        weights = self._weights(np.concatenate(self._sizes)[order], upload.rows.device)
        aggregate.sift(upload, weights, self._totals)

    def _users(self, aggregate: Aggregate, context: RoundContext) -> Tensor:
        """The vectors that the server holds of all users, after the round."""
        users, clients = self._shared[aggregate.held], np.concatenate(self._clients)
        order = np.argsort(clients)
        changes = torch.cat([upload.changes[aggregate.held] for _, upload in self._single])
        who = torch.from_numpy(clients[order]).to(users.device)
        return aggregate.pass_on(users, who, changes[torch.from_numpy(order).to(users.device)], context)

    def _weights(self, sizes: Ints, device: torch.device) -> Tensor | None:
        """The clients' weights, or None if all weigh the same."""
        return torch.from_numpy(sizes).to(device).double() if self._method.aggregate.weighted else None

    def _tables(self, aggregate: Aggregate, clients: Ints, held: Params) -> Tensor:
        """[c, n_items, d]: every client's version of the source table after training.

        The server knows a table that clients keep as the sum of all they ever sent. The clients hold the same
        values, so a simulation stores the table only once, and adds what protects an upload to it.
        """
        source, fed = aggregate.source, fed_by(self._method)
        if fed:
            table = held[fed]
            kept = table if len(clients) == len(table) else table[torch.from_numpy(clients)]
            return self._protection.send_kept(clients, fed, kept)
        tables = self._shared[source]
        if source not in self._method.tailored:
            tables = tables.expand(len(clients), *tables.shape).clone()
        elif len(clients) < len(tables):
            tables = tables[torch.from_numpy(clients)]
        n_items = tables.shape[1]
        flat = tables.view(-1, *tables.shape[2:])
        for who, upload in self._single:
            place = torch.from_numpy(np.searchsorted(clients, who)).to(flat.device)
            rows = place.repeat_interleave(upload.row_counts) * n_items + upload.rows
            flat.index_add_(0, rows, upload.changes[source])
        return tables


def fed_by(method: Method) -> str:
    """The personal table whose changes are sent for the mixed table; empty if there is none."""
    source = method.aggregate.source
    return next((leaf.name for leaf in method.leaves if source and leaf.feeds == source), "")


def derived(method: Method, shared: Params) -> Params:
    """The shared leaves that are computed from other shared ones."""
    derived = {leaf.derived_from: leaf.name for leaf in method.select(home=Home.SHARED) if leaf.derived_from}
    found = method.view.derive({name: shared[name] for name in derived})
    return {name: found[name] for name in derived.values()}
