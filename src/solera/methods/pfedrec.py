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

Dual personalization as a plug-in makes the scorer of any method personal, lets it step before the items on
every batch, and serves every client with its own fine-tuned item table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import BaseModel, Field

from solera.core.context import MethodConfig, RoundContext
from solera.core.errors import ConfigError
from solera.core.leaf import ITEMS
from solera.core.method import Method
from solera.core.parts import Move, Sgd, Stage, Update
from solera.methods.parts import (
    BinaryCrossEntropy,
    ItemTable,
    Kept,
    Mean,
    PersonalLinear,
    personal,
    require_shared_table,
)


class PFedRecConfig(MethodConfig):
    """Defaults: the public code's settings for MovieLens-100K."""

    item_rate: float = Field(default=80.0, gt=0, description="η' / (η · number of items)")


@dataclass(frozen=True)
class ScoreThenItems(Update):
    """Train the score function first, then the items, on every batch."""

    label: str = "scorer, then items, on every batch"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        rate, reg = context.hyper["learning_rate"], context.hyper["reg"]
        score = Move(("score.weight", "score.bias"), Sgd(rate, reg))
        items = Move(("items",), Sgd(rate * context.n_items * context.hyper["item_rate"], reg))
        return (Stage(context.local_epochs, (score, items)),)


def pfedrec(config: PFedRecConfig) -> Method:
    """Build PFedRec: personal linear × fine-tuned and kept × scorer then items × mean."""
    return Method(
        name="pfedrec",
        paper="Zhang et al. 2023",
        config=config,
        scorer=PersonalLinear(config.embedding_size),
        view=ItemTable(config.embedding_size, keep=True),
        loss=BinaryCrossEntropy(),
        update=ScoreThenItems(),
        aggregate=Mean(),
    )


class DualPersonalizationConfig(BaseModel):
    """No options."""


@dataclass(frozen=True)
class ScorerFirst(Update):
    """The method's own steps, with the scorer trained before the others on every batch."""

    inner: Update
    scorer: frozenset[str]
    label: str = "scorer, then items, on every batch"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The method's stages with every move split in two, with the same optimizers."""

        def halves(move: Move) -> tuple[Move, ...]:
            first, second = move.only(self.scorer), move.only(set(move.all_leaves) - self.scorer)
            return tuple(half for half in (first, second) if half)

        return tuple(
            replace(stage, moves=tuple(half for move in stage.moves for half in halves(move)))
            for stage in self.inner.stages(context)
        )


def dual_personalization(method: Method, config: DualPersonalizationConfig) -> Method:
    """Apply the plug-in to a method."""
    require_shared_table(method, "dual-personalization")
    if ITEMS in method.view.keeps:
        raise ConfigError(
            f"'dual-personalization' cannot be used with {method.name!r}: its clients already keep their "
            "fine-tuned table",
            "leave it out",
        )
    scorer = personal(method.scorer)
    names = frozenset(leaf.name for leaf in scorer.leaves)
    return replace(method, scorer=scorer, view=Kept(method.view), update=ScorerFirst(method.update, names))
