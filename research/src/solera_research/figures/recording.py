"""Keep data of single rounds for figures. Recording does not change a run.

A round, by its number from 1, or 0 before the first, is a dictionary of arrays. Of up to 24 users, evenly
spread by activity, and of one of median activity:

users, vectors           their numbers, the least active first, and their vectors after the round

Rounds 1, 2, 5, 10, 20, 50, … and the last one also hold, if the method has it:

upload/client, /rows     one client, as close to median activity as possible, and the items it sent
upload/NAME/before       these rows of the table NAME as the server had them,
upload/NAME/change       and the change that arrived
merging/users, /items    the weights ρ [users, items] of the shared table in the round's merge,
merging/values           for items that are spread evenly by popularity, the most popular first
mixing/users, /values    the weights [users, users] by which the server mixed their tables
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from solera.core.leaf import Leaf, Params
from solera.core.parts import View
from solera.core.types import Ints
from solera.core.upload import Upload
from solera.engine import Simulation
from solera.methods.fedem import Merged, MergedBefore
from solera.methods.plgc import Mixed, MixedAdditive
from solera_research.figures.tables import user_vector

Merging = Merged | Mixed | MixedAdditive

Arrays = dict[str, NDArray[Any]]

USERS, ITEMS = 24, 30


class Recorder:
    """Records the rounds of a simulation. `uploads` says whether the server sees single uploads."""

    def __init__(self, simulation: Simulation, rounds: int, *, uploads: bool) -> None:
        self._simulation, self._rounds, self._uploads = simulation, rounds, uploads
        self.rounds: dict[int, Arrays] = {}
        ordered = by_activity(simulation.data.train.lengths)
        wanted = np.append(spread(ordered, USERS), middling(simulation.data.train.lengths))
        places = np.flatnonzero(np.isin(ordered, wanted))
        self.users = ordered[places]
        self._nearest = self.users[np.argsort(np.abs(places - len(ordered) // 2), kind="stable")]
        popularity = np.bincount(simulation.data.train.values, minlength=simulation.data.n_items)
        self.items = spread(np.argsort(-popularity, kind="stable"), ITEMS)
        self._vector = user_vector(simulation.method)
        self._merging = merging_view(simulation.method.view)
        self._full = False
        self._before: Params = {}
        self._found: Params = {}
        self._sender = len(self._nearest)  # index among the nearest, of the client whose upload is recorded

    def begin(self, round_: int) -> None:
        """Called before round `round_`, counted from 0."""
        if round_ == 0:
            self._keep(0)
        self._found, self._sender = {}, len(self._nearest)
        self._full = is_full(round_ + 1, self._rounds)
        self._simulation.observer = self if self._full else None
        self._before = self._simulation.held(self.users) if self._full and self._merging else {}

    def end(self, round_: int) -> None:
        """Called after round `round_`."""
        if self._before:
            taking_part = np.isin(self.users, self._simulation.choose(round_))
            self._found |= self._merged(np.flatnonzero(taking_part))
        self._keep(round_ + 1)

    def uploaded(self, clients: Ints, upload: Upload) -> None:
        """Record the upload of the client closest to median activity."""
        here = np.flatnonzero(np.isin(self._nearest, clients))
        if self._uploads and len(here) and here[0] < self._sender:
            self._sender = int(here[0])
            client = int(self._nearest[self._sender])
            leaves = self._simulation.method.leaves
            one = upload.of_client(int(np.flatnonzero(clients == client)[0]), leaves)
            self._found |= {"upload/client": torch.tensor(client), "upload/rows": one.rows}
            for leaf in leaves:
                if leaf.sent_as and leaf.per_item:
                    change = one.changes[leaf.sent_as]
                    self._found[f"upload/{leaf.sent_as}/change"] = change
                    self._found[f"upload/{leaf.sent_as}/before"] = self._known(leaf, client, one)

    def mixed(self, clients: Ints, weights: Tensor) -> None:
        """Record the mixing weights among the recorded users."""
        users = self.users[np.isin(self.users, clients)]
        places = torch.from_numpy(np.searchsorted(clients, users)).to(weights.device)
        self._found |= {
            "mixing/users": torch.from_numpy(users),
            "mixing/values": weights[places][:, places].float(),
        }

    def _known(self, leaf: Leaf, client: int, upload: Upload) -> Tensor:
        """Rows of a table as the server knows them: the shared one, or the sum of all the client sent."""
        state, name = self._simulation.state, leaf.sent_as
        if leaf.feeds:
            own = state.personal.table(leaf.name, np.array([client]))[0]
            return own[upload.rows] - upload.changes[name]
        table = state.shared[name]
        return (table[client] if name in state.tailored else table)[upload.rows]

    def _merged(self, places: Ints) -> Params:
        assert self._merging is not None
        after = self._simulation.held(self.users)
        with torch.no_grad():
            weights = merged_by(self._merging, self._before, after)
        whole = weights.expand(len(self.users), self._simulation.data.n_items, 1)[..., 0]
        return {
            "merging/users": torch.from_numpy(self.users[places]),
            "merging/items": torch.from_numpy(self.items),
            "merging/values": whole[places][:, self.items].float(),
        }

    def _keep(self, number: int) -> None:
        tensors = self._found | {"users": torch.from_numpy(self.users)}
        if self._vector:
            tensors["vectors"] = self._simulation.state.personal.whole[self._vector][self.users].float()
        self.rounds[number] = {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()}


def is_full(number: int, rounds: int) -> bool:
    """Whether everything is recorded in round `number`: 1, 2, 5, 10, 20, 50, … and the last of `rounds`."""
    return number == rounds or str(number).rstrip("0") in {"1", "2", "5"}


def merging_view(view: View | None) -> Merging | None:
    """The part of a view that merges the shared table into the client's own, if there is one."""
    while view is not None and not isinstance(view, Merged | Mixed | MixedAdditive):
        view = getattr(view, "inner", None)
    return view


def merged_by(view: Merging, before: Params, after: Params) -> Tensor:
    """ρ of a round, [..., n, 1] or fewer: 1 takes the shared table's row, 0 keeps the client's row.

    `before` and `after` are the clients' leaves before and after the round.
    """
    if not isinstance(view, Merged):
        return 1 - view.share(after)
    if isinstance(view, MergedBefore):  # by the tables before the round and the adapter learned before it
        after = before | {leaf.name: after[leaf.name] for leaf in view.adapter_leaves}
    return torch.as_tensor(view.weight(after))


def spread(ordered: Ints, count: int) -> Ints:
    """Up to `count` evenly spaced elements of an ordered array, including the first and the last."""
    places = np.linspace(0, len(ordered) - 1, min(count, len(ordered))).astype(np.int64)
    return ordered[places]


def by_activity(sizes: Ints) -> Ints:
    """The users who have training items, those with the fewest first."""
    order = np.argsort(sizes, kind="stable")
    return order[sizes[order] > 0]


def middling(sizes: Ints) -> int:
    """The user with median activity, whose tables and uploads are shown."""
    order = by_activity(sizes)
    return int(order[len(order) // 2])
