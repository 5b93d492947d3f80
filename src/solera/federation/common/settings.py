"""Settings of a federation, chosen by its operator."""

from __future__ import annotations

import math

from pydantic import Field

from solera.core.errors import ConfigError
from solera.core.frozen import Frozen
from solera.dp.settings import DP
from solera.math.robust import Combination


class Settings(Frozen):
    """Decided once, and kept with the federation's state."""

    rounds: int = Field(default=20, ge=1)
    min_nodes: int = Field(default=2, ge=1, description="nodes that must be there before a round begins")
    patience: float = Field(default=600, gt=0, description="seconds to wait for them")
    over_selection: float = Field(
        default=1.3, ge=1, description="users asked for every user needed, where not all take part"
    )
    deadline: float = Field(
        default=600, gt=0, description="seconds after which a round ends with what has come"
    )
    straggler_wait: float = Field(
        default=10,
        ge=0,
        description="seconds that a round waits for nodes that hang, once two thirds have answered",
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
    groups: int = Field(
        default=1, ge=1, le=1000, description="groups of nodes whose masked sums are opened one by one"
    )
    combine: Combination = Field(
        default="median", description="of three groups or more: what is made of the means over each"
    )
    least_nodes: int = Field(default=10, ge=2, description="nodes that a masked sum is over, at the least")
    least_share: float = Field(
        default=0.5, gt=0, le=1, description="share of the signed roster that these nodes are, at the least"
    )
    least_users: int = Field(default=10, ge=1, description="users that a masked sum is over, at the least")
    sums_without_noise: int = Field(
        default=1, ge=1, description="masked sums without noise that devices help to open, at most"
    )
    users_per_node: int = Field(default=100, ge=1, description="users that one node may have")
    max_norm: float | None = Field(
        default=None,
        gt=0,
        description="L2 norm up to which one user's change is taken; without it, every number is cut off"
        " at a bound that follows from what the users send",
    )
    hold_back: bool = Field(
        default=False, description="train without every user's last item, and publish versions explicitly"
    )
    evaluation_epsilon: float = Field(
        default=0, ge=0, description="ε of all evaluations that a user is ever asked for; 0 for none"
    )
    repeats: bool = Field(
        default=False, description="a schedule runs methods of one round again and again, `rounds` times"
    )
    dp: DP | None = Field(default=None, description="differential privacy of a user, over all rounds")

    def total_rounds(self, needed: int | None) -> int:
        """Rounds of a federation whose method needs so many; None stands for as many as there are."""
        return self.rounds if self.repeats or needed is None else needed

    def threshold_of(self, members: int, roster: int) -> int:
        """How many of a masked round's nodes must stay to its end, of a roster of so many."""
        shares = (self.threshold * members, self.least_share * roster)
        return max(2, members // 2 + 1, self.least_nodes, *(math.ceil(share - 1e-9) for share in shares))


def check_roster(nodes: int, settings: Settings) -> None:
    """Refuse masked rounds that no roster of that size can have."""
    if settings.least_share * settings.groups > 1:
        raise ConfigError(
            f"a masked sum must be over {settings.least_share:.0%} of the roster, but there are"
            f" {settings.groups} groups",
            f"give --least-share {1 / settings.groups / 2:g}, and on every device"
            f" solera device policy DEVICE --least-share {1 / settings.groups / 2:g}",
        )
    if nodes < settings.least_nodes * settings.groups:
        each = "each of " + str(settings.groups) + " groups" if settings.groups > 1 else "a masked sum"
        raise ConfigError(
            f"the roster has {nodes} nodes, but {each} needs at least {settings.least_nodes}",
            "for a trial: --least-nodes 3 --least-users 3, and on every device"
            " solera device policy DEVICE --least-nodes 3 --least-users 3",
        )
