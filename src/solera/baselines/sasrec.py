"""SASRec: self-attention over a history, oldest first, that predicts the next item at every position.

Kang & McAuley, "Self-Attentive Sequential Recommendation" (ICDM 2018), with blocks `sasrec` of
`math.transformer`. The loss is not the paper's binary cross-entropy against one negative but, by default, the
softmax over all items, which is stronger (Klenitskiy & Vasilev, "Turning Dross Into Gold Loss", RecSys 2023).
With the loss `gbce` it is gSASRec (Petrov & Macdonald, RecSys 2023). Training: `baselines.sequences`.
"""

from __future__ import annotations

from pydantic import Field

from solera.baselines.sequences import SequenceConfig, SequenceModel, fit
from solera.baselines.training import OnEpoch
from solera.data.interactions import Split


class SASRecConfig(SequenceConfig):
    """Settings of SASRec."""

    perceptron: int = Field(default=4, ge=1)
    """Width of the perceptron in a block, in multiples of embedding_size."""


class SASRec(SequenceModel):
    """A fitted SASRec."""

    @classmethod
    def fit(
        cls, split: Split, config: SASRecConfig | None = None, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> SASRec:
        """Train on all users' training items, until validation items are ranked no better."""
        config = config or SASRecConfig()
        network = config.network("sasrec", config.perceptron)
        return cls(network, fit(split, network, config, seed=seed, on_epoch=on_epoch))
