"""Uploads of malicious clients.

`boost` says how much longer their changes are than ordinary ones; 1 hides among them.

    random      noise on the rows of an ordinary upload, `boost` times as long
    sign-flip   an ordinary upload times −boost
    promotion   the targets' rows along the gradient that raises the made-up users' scores of them, as long as
                `boost` of the longest ordinary rows; in the manner of FedRecAttack (Rong et al., ICDE 2022)
    alignment   the targets' rows towards the mean row of the most popular items, as far as it takes if all
                others send nothing, and at most as long; in the manner of PipAttack (Zhang et al., WSDM 2022)
    weight      promotion, with a claim to have trained on 10⁹ items
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from solera.core.leaf import Params
from solera.core.types import Ints
from solera.core.upload import Upload
from solera.engine.local_training import ClientResult, LocalTraining, Task, start
from solera.engine.store import TouchedRows
from solera_research.inference.row_changes import flat_rows
from solera_research.poisoning.crowd import Crowd

CLAIM = 10**9
_POPULAR = 20  # items that targets are made to look like


@dataclass(frozen=True)
class Poisoned(LocalTraining):
    """Local training in which clients from number `first` on are malicious, and work together."""

    train: LocalTraining
    crowd: Crowd
    attack: str
    first: int
    targets: Tensor
    boost: float

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        """Results of the honest clients, then of the malicious ones."""
        malicious = clients[clients >= self.first]
        yield from self.train(task, clients[clients < self.first])
        if len(malicious):
            self.crowd.follow(task)
            share = len(malicious) / len(clients)
            for client in malicious.tolist():
                yield self._result(task, client, ATTACKS[self.attack](self, task, client, share))

    def _result(self, task: Task, client: int, upload: Upload) -> ClientResult:
        """Result with this upload, of a client whose own parameters do not change."""
        who = np.array([client])
        claims = np.array([CLAIM]) if self.attack == "weight" else None
        params = start(task, TouchedRows(who, upload.rows, upload.row_counts))
        return ClientResult(who, upload, params, torch.zeros(1, dtype=task.state.dtype), claims)

    def ordinary(self, client: int) -> Upload:
        """Ordinary upload of one simulated user."""
        uploads = list(self.crowd.uploads.values())
        return uploads[client % len(uploads)]

    def of_targets(self, task: Task, changes: Params) -> Upload:
        """Upload that changes only the rows of the targets."""
        zeros = {
            leaf.sent_as: torch.zeros(1, *leaf.shape, dtype=task.state.dtype)
            for leaf in task.method.leaves
            if leaf.sent_as and not leaf.per_item
        }
        return Upload(self.targets, torch.tensor([len(self.targets)]), changes | zeros)


def random(how: Poisoned, task: Task, client: int, share: float) -> Upload:
    """Upload random noise."""
    like = how.ordinary(client)
    noise = torch.Generator().manual_seed(hash((task.seed, task.context.round, client)) % 2**63)

    def drawn(change: Tensor) -> Tensor:
        values = torch.randn(change.shape, generator=noise, dtype=change.dtype)
        scale = how.boost * change.norm() / values.norm()
        return values.mul_(scale)

    return Upload(like.rows, like.row_counts, {name: drawn(values) for name, values in like.changes.items()})


def sign_flip(how: Poisoned, task: Task, client: int, share: float) -> Upload:
    """Upload the opposite of an ordinary change."""
    like = how.ordinary(client)
    flipped = {name: -how.boost * values for name, values in like.changes.items()}
    return Upload(like.rows, like.row_counts, flipped)


def promotion(how: Poisoned, task: Task, client: int, share: float) -> Upload:
    """Raise the scores of the targets for simulated users."""
    shared = task.state.shared
    rows = {name: shared[name][how.targets].clone().requires_grad_() for name in how.crowd.tables}
    gain = functional.logsigmoid(how.crowd.scores(how.targets, rows)).sum()
    gradients = torch.autograd.grad(gain, list(rows.values()))
    changes = {
        name: functional.normalize(flat_rows(gradient)).view_as(gradient)
        * (how.boost * how.crowd.longest_row(name))
        for name, gradient in zip(rows, gradients, strict=True)
    }
    return how.of_targets(task, changes)


def alignment(how: Poisoned, task: Task, client: int, share: float) -> Upload:
    """Move the targets towards popular items."""
    popular = torch.from_numpy(np.argsort(-how.crowd.popularity, kind="stable")[:_POPULAR].copy())
    changes = {}
    for name in how.crowd.tables:
        table = task.state.shared[name]
        wanted = (table[popular].mean(0) - table[how.targets]) / share
        norms = flat_rows(wanted).norm(dim=1).view(-1, *[1] * (wanted.dim() - 1))
        limit = how.boost * how.crowd.longest_row(name)
        changes[name] = wanted * (limit / norms).clamp(max=1)
    return how.of_targets(task, changes)


ATTACKS: dict[str, Callable[[Poisoned, Task, int, float], Upload]] = {
    "random": random,
    "sign-flip": sign_flip,
    "promotion": promotion,
    "alignment": alignment,
    "weight": promotion,
}
