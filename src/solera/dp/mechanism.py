"""The Gaussian mechanism on sums over users: clipping, and noise in proportion to the clip.

**Sensitivity.** Two federations are neighbours if one has one user more. All that a user sends in a round
is one vector: every number of every leaf, zero in the rows it did not touch. `Clip` limits its L2 norm to
`norm`, over all leaves together, and every user has weight 1. So the sums of neighbours differ by one vector
of norm at most `norm`: that is their L2 sensitivity, whatever the user's data, its state and the model are.
All numbers of the sum get the same noise, including rows that nobody touched. Which rows were touched, and by
how many users, is not used.

**Mean.** The noisy sum is divided by the expected number of clients, q · n, and not by the actual number,
which depends on the data and would change the mean. n, the number of users, is taken as known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from solera.core.closed_form import Contribution
from solera.core.errors import ConfigError
from solera.core.leaf import Leaf
from solera.core.upload import Upload


@dataclass(frozen=True)
class Clip:
    """Limit on the L2 norm of all that a user sends."""

    norm: float

    def __post_init__(self) -> None:
        if not 0 < self.norm < math.inf:
            raise ConfigError(f"clip={self.norm} is not a bound", "give a number above 0, such as clip=1")

    def factors(self, norms: Tensor) -> Tensor:
        """Scaling factors of the uploads: min(1, clip / norm). An upload that is not finite gets 0."""
        factors = torch.full_like(norms, self.norm) / norms.clamp(min=self.norm)  # exactly 1 if short
        return torch.where(norms.isfinite(), factors, 0.0)

    def upload(self, upload: Upload, leaves: tuple[Leaf, ...]) -> tuple[Upload, Tensor]:
        """The clipped uploads in double precision, and the norm of each before clipping."""
        lengths = norms(upload, leaves)
        factors, owner = self.factors(lengths), _owner(upload)
        changes = {}
        for leaf in (leaf for leaf in leaves if leaf.sent_as):
            change = upload.changes[leaf.sent_as].double()
            by = (factors[owner] if leaf.per_item else factors).view(-1, *[1] * len(leaf.shape))
            changes[leaf.sent_as] = torch.where(by > 0, change * by, 0.0)  # also replaces NaN
        return Upload(upload.rows, upload.row_counts, changes), lengths

    def contribution(self, part: Contribution) -> Contribution:
        """A clipped contribution of sums over a history, by the Frobenius norm over all matrices together."""
        length = math.sqrt(sum(float((block * block).sum()) for block in part.blocks.values()))
        factor = min(1.0, self.norm / length) if length else 1.0
        return Contribution(part.items, {name: block * factor for name, block in part.blocks.items()})


@dataclass(frozen=True)
class Gaussian:
    """Normal noise with a standard deviation of `multiplier` clips. It requires a clip."""

    clip: Clip
    multiplier: float

    def __post_init__(self) -> None:
        if not isinstance(self.clip, Clip):
            raise ConfigError("noise gives no guarantee without a clip", "give Gaussian(Clip(…), multiplier)")
        if not 0 < self.multiplier < math.inf:
            raise ConfigError(f"a noise multiplier of {self.multiplier} gives no privacy", "give one above 0")

    @property
    def std(self) -> float:
        """The standard deviation for every number of the sum."""
        return self.clip.norm * self.multiplier


def norms(upload: Upload, leaves: tuple[Leaf, ...]) -> Tensor:
    """The L2 norm of every client's upload over all leaves, [n_clients], in double precision."""
    owner = _owner(upload)
    if len(torch.unique(owner * (upload.rows.max() + 1) + upload.rows if len(owner) else owner)) < len(owner):
        raise ConfigError("a client sent an item's row twice, so the clip would not bound its contribution")
    squares = torch.zeros(upload.n_clients, dtype=torch.float64, device=upload.rows.device)
    for leaf in (leaf for leaf in leaves if leaf.sent_as):
        change = upload.changes[leaf.sent_as].double()
        each = change.reshape(len(change), -1).square().sum(1)
        if leaf.per_item:
            squares.index_add_(0, owner, each)
        else:
            squares += each
    return squares.sqrt()


def _owner(upload: Upload) -> Tensor:
    """The index of the client that sent each row."""
    clients = torch.arange(upload.n_clients, device=upload.rows.device)
    return clients.repeat_interleave(upload.row_counts)
