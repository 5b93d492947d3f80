"""How a federation is run: what its operator decides."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from solera.privacy.dp.settings import DP


class Settings(BaseModel):
    """Decided once, and kept with the federation's state."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rounds: int = Field(default=20, ge=1)
    min_nodes: int = Field(default=2, ge=1, description="nodes that must be there before a round begins")
    patience: float = Field(default=600, gt=0, description="seconds to wait for them")
    over_selection: float = Field(
        default=1.3, ge=1, description="users asked for every user needed, where not all take part"
    )
    deadline: float = Field(
        default=600, gt=0, description="seconds after which a round ends with what has come"
    )
    min_replies: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="share of the users needed, under --dp of the nodes, below which a round does not count",
    )
    attempts: int = Field(default=3, ge=1, description="how often a round that did not count is tried")
    secure_aggregation: bool = Field(
        default=False, description="take sums over nodes under masks, nothing else"
    )
    threshold: float = Field(
        default=0.67, gt=0.5, le=1, description="share of a masked round's nodes that must stay to its end"
    )
    max_norm: float = Field(default=1e4, gt=0, description="L2 norm up to which one user's change is taken")
    dp: DP | None = Field(default=None, description="differential privacy of a user, over all rounds")
