"""FedMF: federated matrix factorization.

Ammad-ud-din et al., "Federated Collaborative Filtering for Privacy-Preserving Personalized Recommendation
System" (2019); Chai et al., "Secure Federated Matrix Factorization" (IEEE Intelligent Systems 2020).

    score(u, i) = ⟨p_u, q_i⟩        p_u personal, q_i shared
    local:      p_u, Q ← steps on binary cross-entropy of the user's positives and sampled negatives
    server:     Q ← mean over the round's clients of their Q

With `weighted`, a client weighs |D_u| / Σ |D_v|, as in FedAvg. FedEM's paper says so of FedMF, and PFedCLR
has these weights itself. With `item_rate`, p_u has the rate η and Q has η · n_items · `item_rate`, by SGD:
the form in PFedRec's public code. In these forms FedMF reaches the figures that PFedRec and PFedCLR print.

The homomorphic encryption of the second paper protects uploads and is not part of the method.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from solera.core.method import Method
from solera.core.parts import Adam, Sgd
from solera.methods.parts import (
    BinaryCrossEntropy,
    Dot,
    FactorizationConfig,
    ItemTable,
    Joint,
    Mean,
    ThreeRates,
)


class FedMFConfig(FactorizationConfig):
    """Defaults: ten local epochs of Adam on 16 dimensions."""

    optimizer: Literal["adam", "sgd"] = Field(
        default="adam", description="local optimiser, started afresh every round"
    )
    item_rate: float = Field(
        default=0.0,
        ge=0,
        description="step size of items / (learning_rate · number of items), by sgd; 0: learning_rate",
    )
    weighted: bool = Field(
        default=False, description="whether clients weigh by their number of training items, or all the same"
    )

    @model_validator(mode="before")
    @classmethod
    def _sgd_by_item_rate(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("item_rate") and "optimizer" not in given:
            return given | {"optimizer": "sgd"}
        return given

    @model_validator(mode="after")
    def _plain_steps(self) -> Self:
        if self.item_rate and self.optimizer != "sgd":
            raise ValueError("item_rate is a rate of SGD: omit optimizer, or add optimizer=sgd")
        return self


def fedmf(config: FedMFConfig) -> Method:
    """Build FedMF: dot × shared × joint × mean."""
    together = Joint(("user", "items"), Adam if config.optimizer == "adam" else Sgd)
    return Method(
        name="fedmf",
        paper="Chai et al. 2020",
        config=config,
        scorer=Dot(config.embedding_size),
        view=ItemTable(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=ThreeRates(("user",)) if config.item_rate else together,
        aggregate=Mean(weighted=config.weighted),
    )
