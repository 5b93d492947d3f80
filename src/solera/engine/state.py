"""The state of a simulated federation: of its server and of all its clients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from solera.core.leaf import Home, Params
from solera.core.method import Method
from solera.core.tensor_files import Writable
from solera.engine.row_store import IN_MEMORY
from solera.engine.store import PersonalStore, stored_by_rows


@dataclass(frozen=True)
class State:
    """All state that is kept from one round to the next."""

    shared: Params  # on the server; tailored leaves have a first axis of clients
    memory: Params  # on the server, used only by its aggregate
    personal: PersonalStore  # on the clients
    device: torch.device
    dtype: torch.dtype
    tailored: frozenset[str] = frozenset()

    @classmethod
    def initial(
        cls,
        method: Method,
        n_clients: int,
        n_items: int,
        *,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        rows_in_memory: int = IN_MEMORY,
        federation: int | None = None,
    ) -> State:
        """The state before the first round.

        `federation` is the number of clients of all processes, if these are only some of them.
        """
        by_rows = stored_by_rows(method, federation or n_clients, n_items, dtype)
        start = {leaf.name: leaf.initial(n_items, seed).to(device, dtype) for leaf in method.leaves}
        start |= method.derive({leaf.name: start[leaf.name] for leaf in method.select(per_item=True)})
        shared = {leaf.name: start[leaf.name] for leaf in method.select(home=Home.SHARED)}
        for name in method.tailored:
            shared[name] = shared[name].expand(n_clients, *shared[name].shape).clone()
        personal = PersonalStore(
            method, start, n_clients, n_items, by_rows=by_rows, rows_in_memory=rows_in_memory
        )
        return cls(shared, method.memory(shared), personal, device, dtype, method.tailored)

    def copy(self) -> State:
        """A copy that is unaffected by further rounds, which change tailored tables in place."""
        shared = {name: v.clone() if name in self.tailored else v for name, v in self.shared.items()}
        return replace(self, shared=shared, personal=self.personal.copy())

    def of_server(self, tensors: Params) -> State:
        """A copy with another server state and the same clients."""
        shared, memory = ({name: tensors[name] for name in part} for part in (self.shared, self.memory))
        return replace(self, shared=shared, memory=memory)

    def tensors(self) -> tuple[Params, Params]:
        """Tensors of the server and of the clients, as `Simulation.restore` expects them."""
        return self.shared | self.memory, self.personal.tensors()

    def writable(self) -> tuple[Params, Writable]:
        """The same, with clients' rows in pieces."""
        return self.shared | self.memory, self.personal.writable()
