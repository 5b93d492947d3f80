"""The papers' setting: Laplace noise of a fixed scale on every number that is sent, without clipping.

It guarantees nothing: an upload may have any length, so for any noise there are two uploads that it does not
make indistinguishable. If every upload were clipped to length c in L1, a round would be private with
ε = 2c / scale for a user's own upload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from solera.core.arrays import Ints
from solera.core.errors import ConfigError
from solera.core.frozen import Frozen
from solera.core.protection import RoundStep
from solera.core.randomness import Bits, Purpose, client_keys, draws, mix
from solera.core.spec import Leaf, Params
from solera.core.upload import Upload
from solera.dp.noise import SEEDED

NO_GUARANTEE = "no guarantee"
_EXAMPLE = "write --wire paper-laplace=0.5"


class PaperLaplace(Frozen):
    """Laplace noise without clipping, for measurements only."""

    kind: Literal["paper-laplace"] = "paper-laplace"
    scale: float = Field(gt=0)

    @classmethod
    def parse(cls, text: str) -> PaperLaplace:
        """Parse `paper-laplace=0.5`."""
        kind, _, scale = text.partition("=")
        try:
            if kind != "paper-laplace" or not 0 < float(scale) < np.inf:
                raise ValueError
        except ValueError:
            raise ConfigError(f"{text!r} is not a valid --wire", _EXAMPLE) from None
        return cls(scale=float(scale))

    @property
    def label(self) -> str:
        """A short label for this noise."""
        return f"Laplace noise {self.scale:g}, no clip: {NO_GUARANTEE}"

    def upload(self, upload: Upload, leaves: tuple[Leaf, ...], keys: Bits) -> Upload:
        """Add noise to every number that is sent. The sent rows are not hidden.

        `keys` are the keys of the clients' random streams.
        """
        changes, rows = {}, upload.row_counts.cpu().numpy()
        for place, leaf in enumerate(leaf for leaf in leaves if leaf.sent_as):
            change = upload.changes[leaf.sent_as]
            counts = (rows if leaf.per_item else np.ones_like(rows)) * leaf.size
            unit = ((draws(mix(keys + np.uint64(place)), counts) >> np.uint64(11)) + 0.5) * 2.0**-53 - 0.5
            noise = -self.scale * np.sign(unit) * np.log1p(-2 * np.abs(unit))
            changes[leaf.sent_as] = change + torch.from_numpy(noise).view(change.shape).to(change)
        return Upload(upload.rows, upload.row_counts, changes)

    def statement(self, rounds: int) -> dict[str, Any]:
        """The privacy statement of a run with this noise."""
        return {
            "guarantee": NO_GUARANTEE,
            "why": "noise without a clip: an upload may be as long as it likes",
            "noise": f"Laplace of scale {self.scale:g} on every number that is sent",
            "epsilon": None,
            "epsilon_with_the_clip_it_lacks": 2 * rounds / self.scale,
            "that_clip": f"every upload at most 1 long in L1; proportional to it; local, {rounds} rounds",
            "randomness": SEEDED,
        }


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise as a protection step. It only has a client half, the same in every engine."""

    noise: PaperLaplace
    seed: int
    dense: bool = False

    def choose(self, able: Ints, round_: int) -> None:
        """None: the noise does not depend on how clients are drawn."""

    def memory(self) -> Params:
        """No state."""
        return {}

    def begin(self, round_: int, leaves: tuple[Leaf, ...], memory: Params) -> LaplaceRound:
        """Start the step for one round."""
        return LaplaceRound(self, round_, leaves)


@dataclass(frozen=True)
class LaplaceRound(RoundStep):
    """Noise on the uploads of one round."""

    of: LaplaceNoise
    round: int
    leaves: tuple[Leaf, ...]

    def send(self, clients: Ints, upload: Upload) -> Upload:
        """Uploads with noise on every number."""
        keys = client_keys(self.of.seed, Purpose.NOISE, self.round, clients)
        return self.of.noise.upload(upload, self.leaves, keys)
