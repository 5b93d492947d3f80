"""Knowledge of malicious clients: the model, the popularity of items, and simulated users.

Made-up users have histories drawn by popularity and train honestly from every model that is sent, together
and in secret. Their personal parameters stand for those of the real users, and their changes show what an
ordinary upload looks like.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from solera.core.leaf import Home, Params
from solera.core.method import Method
from solera.core.randomness import Purpose, generator
from solera.core.types import Ints
from solera.core.upload import Upload
from solera.data.sampling import ClientData
from solera.engine import Simulation
from solera.engine.local_training import LocalTraining, Task
from solera_research.inference.observe import Observed, Reseeded
from solera_research.inference.row_changes import flat_rows
from solera_research.inference.shadow import Public

SIZE = 50


class Crowd:
    """Users that malicious clients simulate."""

    def __init__(
        self, method: Method, public: Public, train: LocalTraining, *, seed: int, dtype: torch.dtype
    ) -> None:
        draw = generator(seed, Purpose.EVALUATION, *b"crowd")
        histories = public.histories(SIZE, draw)
        data = ClientData(histories, histories.sorted_unique(), len(public.popularity))
        engine = Observed(Reseeded(train, int(draw.integers(2**62))), self._see)
        cpu = torch.device("cpu")
        self._simulation = Simulation(method, data, engine, seed=seed, device=cpu, dtype=dtype)
        self.method, self.popularity = method, public.popularity
        self.uploads: dict[int, Upload] = {}

    def follow(self, task: Task) -> None:
        """Train from what the server sent in this round."""
        simulation = self._simulation
        sent = task.state.shared | task.state.memory
        simulation.restore(sent, simulation.state.tensors()[1])
        self.uploads.clear()
        for _ in simulation.train_clients(task.context.round, np.arange(SIZE)):
            pass

    def _see(self, round_: int, clients: Ints, upload: Upload) -> None:
        leaves = self.method.leaves
        self.uploads.update((c, upload.of_client(place, leaves)) for place, c in enumerate(clients.tolist()))

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The shared tables that clients send changes of rows for."""
        return tuple(sorted({leaf.sent_as for leaf in self.method.leaves if leaf.per_item and leaf.sent_as}))

    def longest_row(self, table: str) -> float:
        """The length of the longest change of a row: that of the median user."""
        longest = [
            float(flat_rows(upload.changes[table]).norm(dim=1).max()) for upload in self.uploads.values()
        ]
        return float(np.median(longest))

    def scores(self, items: Tensor, rows: Params) -> Tensor:
        """Scores [users, items] of the simulated users for some items, given these rows of the tables."""
        state, everybody = self._simulation.state, np.arange(SIZE)
        params = dict(state.personal.whole)
        for leaf in self.method.select(home=Home.PERSONAL, per_item=True):
            params[leaf.name] = state.personal.table(leaf.name, everybody)[:, items]
        for leaf in self.method.select(home=Home.SHARED):
            value = state.shared[leaf.name]
            if leaf.per_item:
                value = (rows[leaf.name] if leaf.name in rows else value[items]).expand(SIZE, -1, *leaf.shape)
            params[leaf.name] = value
        return self.method.score(params)
