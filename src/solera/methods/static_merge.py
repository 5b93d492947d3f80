"""Static merging from a given round on: a plug-in for the preliminary experiments of two papers.

Clients keep their own item table. At the beginning of a round they merge the shared one into it:

    Q_u ← Q_u + ρ (G − Q_u)        from round `aggregate_from` on; before it, Q_u stays as it is

ρ is `merge_weight`. With ρ = 1 the local table is replaced by the shared one, as in the methods without a
local table; with ρ = 0, or before the first merge, clients learn alone. The client's table is served.

- Chen et al. 2025 (FedEM), Figure 2: FedMF under different ρ, for clients in five groups by their number of
  training items.
- Chen et al. 2025 (PFedCLR), Figure 2: FedMF whose aggregation begins in different rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import BaseModel, Field

from solera.core.choices import Stage
from solera.core.context import RoundContext
from solera.core.local_table import require_shared_table
from solera.core.method import Method
from solera.methods.elastic_merge import Merged, MergeThenTrain, merging


class StaticMergeConfig(BaseModel):
    """Defaults: the local table is replaced in every round."""

    merge_weight: float = Field(default=1.0, ge=0, le=1, description="ρ, of the shared table")
    aggregate_from: int = Field(
        default=1, ge=1, description="the first round in which clients take the shared table"
    )


@dataclass(frozen=True)
class MergeFrom(MergeThenTrain):
    """Merge from a given round on, then run the method's own stages on the local table."""

    first_round: int = 1

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """The stages of a round. `aggregate_from` counts rounds from 1, the context from 0."""
        stages = super().stages(context)
        if context.round + 1 >= self.first_round:
            return stages
        return tuple(replace(stage, settle=False) for stage in stages)


def static_merge(method: Method, config: StaticMergeConfig) -> Method:
    """Apply the plug-in to a method."""
    require_shared_table(method, "static-merge")
    merged = Merged(method.view, "static", merge_weight=config.merge_weight)
    made = merging(method, "paper", merged)
    return replace(made, update=MergeFrom(method.update, merged, config.aggregate_from))
