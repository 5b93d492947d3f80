"""The tensors of a server: what it shares, what it mirrors of its clients, and how a round moves it."""

from __future__ import annotations

import numpy as np
import torch

from solera.core.closed_form import Contribution
from solera.core.errors import DivergedError
from solera.core.leaf import Home, Params
from solera.core.method import Method
from solera.core.protection import RoundChain
from solera.core.types import Ints
from solera.core.upload import Sums, Upload
from solera.device.bundle import Bundle
from solera.device.model import Model
from solera.device.tensors import Arrays
from solera.dp.rounds import PrivateRound
from solera.engine import State
from solera.engine.one_round import Cover, Sum, sum_for
from solera.engine.server import Server, derived, fed_by
from solera.federation.common.uploads import Bounds, unpack_matrices, unpack_single, unpack_sums
from solera.federation.node.work import OWN, SHARED, arrays_to_nodes
from solera.math.sparse_ridge import resized
from solera.runs.folder import SavedState

CPU = torch.device("cpu")
Read = Sums | tuple[Ints, Upload] | Contribution  # what clients sent, checked


class ServerState:
    """The state after the last round that counted.

    Of tables that every client has a version of, it has one for each of the `users` who ever enrolled.
    """

    def __init__(self, bundle: Bundle, users: int, saved: SavedState | None) -> None:
        model = Model(bundle)
        self.method, self.dtype = model.method, model.dtype
        self.n_items, self._seed = bundle.manifest.items, bundle.manifest.seed
        if self.method.one_round:
            _ = self.method.prior  # refuses options of attributes: the catalogue of a bundle has none
        self.wire = np.dtype("<f8" if self.dtype == torch.float64 else "<f4")
        self.shared: Params = model.shared
        self.held: Params = {}  # tables that clients keep, as far as they have sent them
        if not self.method.one_round:
            state = self.initial(self.method, users)
            self.shared = state.shared | state.memory | (self.shared if not self.method.tailored else {})
            self.held = {name: state.personal.tables[name] for name in [fed_by(self.method)] if name}
        if saved:
            self.shared = {n: _grown(v, self.shared.get(n)) for n, v in saved.shared.items()}
            self.held = {n: _grown(v, self.held.get(n)) for n, v in saved.personal.items()}
            if not self.method.one_round:
                self.shared |= derived(self.method, self.shared)

    def initial(self, method: Method, users: int) -> State:
        """State before the first round."""
        return State.initial(
            method,
            users if method.tailored else 0,
            self.n_items,
            seed=self._seed,
            device=CPU,
            dtype=self.dtype,
        )

    def make_room(self, users: int) -> None:
        """Add tables for newly enrolled users."""
        if not self.method.one_round and self.method.tailored:
            state = self.initial(self.method, users)
            for name in self.method.tailored:
                self.shared[name] = _grown(self.shared[name], state.shared[name])
            self.held = {name: _grown(v, state.personal.tables[name]) for name, v in self.held.items()}

    def erase(self, numbers: list[int]) -> None:
        """Reset the tables of users who have left."""
        if numbers and not self.method.one_round and self.method.tailored:
            state = self.initial(self.method, max(numbers) + 1)
            for name in self.method.tailored:
                self.shared[name][numbers] = state.shared[name][numbers]
            for name, values in self.held.items():
                values[numbers] = state.personal.tables[name][numbers]

    def undo_round(self, saved: SavedState | None, users: int) -> None:
        """Discard what clients sent in a round that did not count."""
        if saved and self.held:
            self.held = {n: _grown(v, self.held[n]) for n, v in saved.personal.items()}
        elif self.held and not self.method.one_round:
            state = self.initial(self.method, users)
            self.held = {name: state.personal.tables[name] for name in self.held}

    def arrays_for(self, round_: int | None, numbers: list[int], n_items: int) -> Arrays:
        """What a node gets with its users' numbers: the state as far as the items of its catalogue go."""
        arrays: Arrays = {}
        for name in arrays_to_nodes(self.method, n_items, self.wire, round_):
            kind, leaf = (OWN, name[len(OWN) :]) if name.startswith(OWN) else (SHARED, name[len(SHARED) :])
            values = self.shared[leaf]
            if kind == OWN:
                values = values[numbers]
            arrays[name] = self._cut(leaf, values, n_items, axis=1 if kind == OWN else 0).numpy()
        return arrays

    def _cut(self, leaf: str, values: torch.Tensor, n_items: int, axis: int) -> torch.Tensor:
        if self.method.one_round:
            channels = self.method.scorer.channels
            if self.method.neighbours:
                return resized(self.shared, n_items, channels)[leaf]
            square = values.view(channels, self.n_items, self.n_items)[:, :n_items, :n_items]
            return square.reshape(-1, n_items).contiguous()
        per_item = {each.name for each in self.method.select(home=Home.SHARED, per_item=True)}
        return values.narrow(axis, 0, n_items).contiguous() if leaf in per_item else values

    def begin(self, private: PrivateRound | None = None) -> Server | Sum:
        """What takes in the uploads of a round, whose total may have to be covered."""
        if self.method.one_round:
            return sum_for(self.method, self.n_items)
        protection = RoundChain((private,) if private else ())
        return Server(self.method, self.shared, self.n_items, CPU, protection=protection)

    def read(self, arrays: Arrays, bounds: Bounds) -> Read:
        """Check what some clients sent."""
        if self.method.one_round:
            return unpack_matrices(self.method, arrays, bounds)
        unpack = unpack_sums if self.method.sums_alone else unpack_single
        return unpack(self.method, arrays, bounds)

    def peak_of(self, sent: Read) -> float:
        """The largest number of what clients sent, per user; 0 where a bound is known beforehand."""
        if isinstance(sent, Contribution):
            return 0.0
        assert not self.method.one_round
        if isinstance(sent, Sums):
            return sent.peak(self.method.leaves)
        return float(sent[1].peaks(self.method.leaves).max())

    def add(self, server: Server | Sum, clients: Ints, sent: Read) -> None:
        """Add the uploads of some clients."""
        if isinstance(sent, Contribution):
            assert isinstance(server, Sum)
            server.add(sent)
            return
        assert isinstance(server, Server)
        assert not self.method.one_round
        if isinstance(sent, Sums):
            server.merge(sent)
            return
        sizes, upload = sent
        server.add(clients, sizes, upload)
        for name, table in self.held.items():
            source = next(leaf.feeds for leaf in self.method.leaves if leaf.name == name)
            owner = torch.from_numpy(clients).repeat_interleave(upload.row_counts)
            flat = table.view(-1, *table.shape[2:])
            flat.index_add_(0, owner * self.n_items + upload.rows, upload.changes[source].to(flat))

    def conclude(self, server: Server | Sum, number: int, cover: Cover | None = None) -> None:
        """Move on to the state after the round."""
        if isinstance(server, Sum):
            shared = server.solve(CPU, self.dtype, cover)
        else:
            assert not self.method.one_round
            shared = server.conclude(self.held, self.method.context(number, self.n_items, self._seed))
        if not all(bool(torch.isfinite(values).all()) for values in shared.values()):
            raise DivergedError(
                f"the state after round {number + 1} is not finite",
                "lower the method's learning_rate, or --max-norm",
            )
        self.shared = shared


def _grown(values: torch.Tensor, start: torch.Tensor | None) -> torch.Tensor:
    """A tensor with the rows it has, and those of `start` where that has more."""
    if start is None or values.shape == start.shape:
        return values
    larger = start.clone()
    larger[tuple(slice(0, n) for n in values.shape)] = values
    return larger
