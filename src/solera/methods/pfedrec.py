"""PFedRec: dual personalization.

Zhang et al., "Dual Personalization on Federated Recommendation" (IJCAI 2023).

    score(u, i) = ⟨w_u, q_i⟩ + b_u            the score function (w_u, b_u) is personal      (Eq. 6)
    on every batch of a client:                                                 (Algorithm 1)
        w_u, b_u ← w_u, b_u − η  ∇ L          with the item table as downloaded or last moved
        Q_u      ← Q_u − η' ∇ L               with the score function just updated
    server:  Q ← mean of the clients' Q_u
    served:  with the client's own fine-tuned Q_u, not with the aggregate

Symbols: η is `learning_rate`; η' = η · n_items · `item_rate`, as in the public code (η' is left open in the
paper). Where paper and public code differ, this follows the paper: the code also uploads and averages the
score function's bias, here it stays on the client.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from solera.core.choices import Move, Sgd, Stage
from solera.core.context import MethodConfig, RoundContext
from solera.core.method import Method
from solera.core.parts import ItemTable, Mean, PersonalLinear, Plain


class PFedRecConfig(MethodConfig):
    """Defaults: the public code's settings for MovieLens-100K."""

    item_rate: float = Field(80.0, gt=0, description="η' / (η · number of items)")


@dataclass(frozen=True)
class ScoreThenItems:
    """On every batch the score function steps first, then the items."""

    label: str = "scorer, then items, on every batch"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """One stage of two moves."""
        rate, reg = context.hyper["learning_rate"], context.hyper["reg"]
        score = Move(("score.weight", "score.bias"), Sgd(rate, reg))
        items = Move(("items",), Sgd(rate * context.n_items * context.hyper["item_rate"], reg))
        return (Stage(context.local_epochs, (score, items)),)


def pfedrec(config: PFedRecConfig) -> Method:
    """personal linear × fine-tuned and kept × scorer then items × mean × plain."""
    return Method(
        name="pfedrec",
        paper="Zhang et al. 2023",
        config=config,
        scorer=PersonalLinear(config.embedding_size),
        view=ItemTable(config.embedding_size, keep=True),
        update=ScoreThenItems(),
        aggregate=Mean(),
        wire=Plain(),
    )
