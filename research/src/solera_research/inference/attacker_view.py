"""What an attacker sees of uploads, with and without protection.

    plain         every upload, and any sum of some of them; with --noise, under the papers' noise
    local         the same, but uploads are clipped and have their clients' noise on every number of every row
    central       the sum over all clients of a round under noise: what the next model tells. The server
                  itself sees plain uploads and is trusted
    distributed   that sum too, and the server sees no more than anybody

Noise is drawn here apart from that of the training it is shown with, from the same distribution: the attacks
look at what is sent in a round, and not at what the server makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from solera.core.leaf import Leaf
from solera.core.types import Floats, Ints
from solera.core.upload import Upload
from solera.dp.mechanism import Clip
from solera.dp.settings import DP, Mode, PaperLaplace
from solera_research.inference.row_changes import SeenRows, rows_seen, total


@dataclass(frozen=True)
class Plain:
    """Unprotected uploads, or such with the papers' noise of standard deviation `sent_noise`."""

    tables: tuple[str, ...]
    n_items: int
    sent_noise: float = field(default=0.0, kw_only=True)

    @property
    def sum_alone(self) -> bool:
        """Whether the attacker sees only the sum over all clients of a round."""
        return False

    def each(self, clients: Ints, upload: Upload) -> dict[int, SeenRows]:
        """What the attacker knows of every client's upload."""
        seen = (replace(sight, noise=self.sent_noise) for sight in rows_seen(upload, self.tables))
        return dict(zip(clients.tolist(), seen, strict=True))

    def total(self, parts: Sequence[SeenRows], weights: Floats) -> SeenRows:
        """The sum as the attacker sees it."""
        return total(parts, weights, self.n_items)


@dataclass(frozen=True)
class Private(Plain):
    """Uploads under differential privacy: clipped, with noise of `std` on every value that is seen."""

    clip: Clip
    std: float
    leaves: tuple[Leaf, ...]
    mode: Mode
    draw: np.random.Generator

    @property
    def sum_alone(self) -> bool:
        """True unless clients add all of the noise themselves."""
        return self.mode != "local"

    def each(self, clients: Ints, upload: Upload) -> dict[int, SeenRows]:
        """Clipped uploads; with noise if the attacker sees single uploads."""
        clipped, _ = self.clip.upload(upload, self.leaves)
        found = super().each(clients, clipped)
        return found if self.sum_alone else {client: self._noisy([sight]) for client, sight in found.items()}

    def total(self, parts: Sequence[SeenRows], weights: Floats) -> SeenRows:
        """The sum, in which every client has weight 1."""
        equal = np.ones(len(parts))
        return self._noisy(parts) if self.sum_alone else total(parts, equal, self.n_items)

    def _noisy(self, parts: Sequence[SeenRows]) -> SeenRows:
        noise = self.std * self.draw.standard_normal((self.n_items, parts[0].changes.shape[1]))
        for part in parts:
            noise[part.rows] += part.changes
        return SeenRows(np.arange(self.n_items), noise, self.std)


def cover(
    dp: DP | None,
    wire: PaperLaplace | None,
    leaves: tuple[Leaf, ...],
    tables: tuple[str, ...],
    *,
    n_items: int,
    draw: np.random.Generator,
) -> Plain:
    """The attacker's view for the resolved settings of a run."""
    if dp is None:
        return Plain(tables, n_items, sent_noise=wire.deviation if wire else 0.0)
    assert dp.noise is not None
    return Private(tables, n_items, Clip(dp.clip), dp.clip * dp.noise, leaves, dp.mode, draw)
