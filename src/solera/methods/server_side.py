"""Server-side improvements that use the same uploads, as plug-ins.

The first two are for methods that average clients' changes, the last for any with a server.

`row-mean`. A client touches few rows of the item table. The mean over all clients also counts the clients
that did not change a row, so a row moves less the fewer clients touch it:

    q_i ← q_i + Σ_u w_u Δ_ui / Σ_u w_u               the mean over all clients of the round
    q_i ← q_i + Σ_u w_u Δ_ui / Σ_{u touches i} w_u   row-mean

w_u is 1, or the number of a client's training items if the method weights its clients. Leaves that are not
per item are touched by everybody and keep their mean. The server only needs the sums it has, and the number
of clients that touched each row (or their weight).

`server-optimizer`. The mean change Δ of a leaf, row by row with `row-mean`, is the gradient of an optimizer
on the server (Reddi et al., "Adaptive Federated Optimization", ICLR 2021):

    adam (FedAdam):      m ← β₁ m + (1 − β₁) Δ,   v ← β₂ v + (1 − β₂) Δ²,   x ← x + η m / (√v + τ)
    momentum (FedAvgM):  m ← β m + Δ,                                      x ← x + η m

η is `server_learning_rate`; β₁ = β = 0.9, β₂ = 0.99, τ = 10⁻³; initially m = 0 and v = τ². As in the
original, rows that nobody touched in a round have Δ = 0 and continue to move with the remaining m. m and v
stay on the server from round to round, and no client receives them.

`popular-negatives`. A client draws its training negatives with probability in proportion to

    (n_i + 1)^β          n_i: how many clients train on item i

instead of uniformly. Excluded items are never drawn, as always. β is `popularity_power`; 0 is uniform. An
item that nobody trains on can still be drawn. The clients must know the n_i. They are sums over all clients,
which the server has to collect and send out once before the first round. So clients reveal something more,
though only in sums. The reported bytes of a round do not include this exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from solera.core.context import RoundContext, Schedule, Scheduled
from solera.core.errors import ConfigError
from solera.core.leaf import Params
from solera.core.method import Method
from solera.core.upload import Totals
from solera.methods.parts import Mean, OfMean


class PopularNegativesConfig(BaseModel):
    """Default: better than 0 on validation."""

    popularity_power: float = Field(
        default=0.5, ge=0, le=2, description="β: negatives come up by popularity to this power; 0 is uniform"
    )


def popular_negatives(method: Method, config: PopularNegativesConfig) -> Method:
    """Apply the plug-in to a method."""
    if not any(leaf.sent_as for leaf in method.leaves):
        raise ConfigError(
            f"'popular-negatives' cannot be used with {method.name!r}: its clients send nothing, so "
            "the server "
            "does not know which items are popular",
            "choose a method with a server; `solera methods` shows the aggregates",
        )
    return replace(method, popularity_power=config.popularity_power)


_DECAY, _SQUARE_DECAY, _TAU = 0.9, 0.99, 1e-3  # β₁ = β, β₂, τ


class RowMeanConfig(BaseModel):
    """No options."""


def row_mean(method: Method, config: RowMeanConfig) -> Method:
    """Apply the plug-in to a method."""
    mean = _mean(method, "row-mean")
    if method.view.settles:
        raise ConfigError(
            f"'row-mean' cannot be used with {method.name!r}: its clients send whole tables, so each of them "
            "changes every row",
            "leave it out: the mean is the same",
        )
    if mean.by_row:
        raise ConfigError(
            f"'row-mean' cannot be used with {method.name!r}: it already averages rows this way",
            "leave it out",
        )
    return replace(method, aggregate=replace(mean, by_row=True))


class ServerOptimizerConfig(BaseModel):
    """Default learning rate: better than 0.03 on validation, for adam."""

    server_optimizer: Literal["adam", "momentum"] = Field(
        default="adam", description="the server's optimiser: adam (FedAdam) or momentum (FedAvgM)"
    )
    server_learning_rate: Scheduled = Field(
        default=Schedule(start=0.1), description="η: the server's step size"
    )


@dataclass(frozen=True)
class ServerOptimizer(OfMean):
    """Use the mean change as the gradient of a server-side optimizer."""

    optimizer: Literal["adam", "momentum"]

    @property
    def label(self) -> str:
        return f"{self.mean.label}, by {self.optimizer} on the server"

    def memory(self, sent: Params) -> Params:
        """m and, for adam, v of every leaf that is sent."""
        found = {f"server.m.{name}": torch.zeros_like(value) for name, value in sent.items()}
        if self.optimizer == "adam":
            found |= {f"server.v.{name}": torch.full_like(value, _TAU**2) for name, value in sent.items()}
        return found

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """One optimizer step on every leaf that is sent."""
        after = dict(shared)
        for name in totals.names:
            for key, value in self._step(name, shared, self.mean.change(totals, name), context).items():
                after[key] = value.to(shared[key].dtype)
        return after

    def _step(self, name: str, shared: Params, change: Tensor, context: RoundContext) -> Params:
        """The updated leaf and state, in double precision."""
        rate, m_name, v_name = context.hyper["server_learning_rate"], f"server.m.{name}", f"server.v.{name}"
        x, m = shared[name].double(), shared[m_name].double()
        if self.optimizer == "momentum":
            m = _DECAY * m + change
            return {name: x + rate * m, m_name: m}
        m = _DECAY * m + (1 - _DECAY) * change
        v = _SQUARE_DECAY * shared[v_name].double() + (1 - _SQUARE_DECAY) * change.square()
        return {name: x + rate * m / (v.sqrt() + _TAU), m_name: m, v_name: v}


def server_optimizer(method: Method, config: ServerOptimizerConfig) -> Method:
    """Apply the plug-in to a method."""
    mean = _mean(method, "server-optimizer")
    return replace(method, aggregate=ServerOptimizer(mean, config.server_optimizer))


def _mean(method: Method, plugin: str) -> Mean:
    """The method's aggregate, if it is a mean of the clients' changes."""
    if not isinstance(method.aggregate, Mean):
        raise ConfigError(
            f"{plugin!r} cannot be used with {method.name!r}: its server does not take the mean of the "
            f"clients' changes (its aggregate: {method.aggregate.label})",
            "choose a method whose aggregate is a mean; `solera methods` shows the aggregates",
        )
    return method.aggregate
