"""eSASRec: SASRec with gated residuals, gated perceptrons and a sampled softmax.

Tikhonovich et al., "eSASRec: Enhancing Transformer-based Recommendations in a Modular Fashion" (RecSys 2025),
with blocks `ligr` of `math.transformer`, which are LinkedIn's (Borisyuk et al., "From Features to
Transformers", 2025). Training: `baselines.sequences`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from solera.baselines.sequences import SequenceConfig, SequenceModel, fit
from solera.baselines.training import OnEpoch
from solera.data.interactions import Split


class ESASRecConfig(SequenceConfig):
    """Settings of eSASRec."""

    loss: Literal["softmax", "sampled", "gbce"] = "sampled"
    """softmax over all items, or over sampled ones, or generalized binary cross-entropy."""
    perceptron: int = Field(default=4, ge=1)
    """Width of the perceptron in a block, in multiples of embedding_size."""


class ESASRec(SequenceModel):
    """A fitted eSASRec."""

    @classmethod
    def fit(
        cls, split: Split, config: ESASRecConfig | None = None, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> ESASRec:
        """Train on all users' training items, until validation items are ranked no better."""
        config = config or ESASRecConfig()
        network = config.network("ligr", config.perceptron)
        return cls(network, fit(split, network, config, seed=seed, on_epoch=on_epoch))
