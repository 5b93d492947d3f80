"""Popularity-based negative sampling: a plug-in for any method with several clients.

A client draws its training negatives with probability in proportion to

    (n_i + 1)^β          n_i: how many clients train on item i

instead of uniformly. Excluded items are never drawn, as always. β is `popularity_power`; 0 is uniform. An
item that nobody trains on can still be drawn.

The clients must know the n_i. They are sums over all clients, which the server has to collect and send out
once before the first round. So clients reveal something more, though only in sums. The reported bytes of a
round do not include this exchange.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, Field

from solera.core.errors import ConfigError
from solera.core.method import Method
from solera.methods.parts import Nothing


class PopularNegativesConfig(BaseModel):
    """Default: better than 0 on validation."""

    popularity_power: float = Field(
        default=0.5, ge=0, le=2, description="β: negatives come up by popularity to this power; 0 is uniform"
    )


def popular_negatives(method: Method, config: PopularNegativesConfig) -> Method:
    """Apply the plug-in to a method."""
    if isinstance(method.aggregate, Nothing):
        raise ConfigError(
            f"'popular-negatives' cannot be used with {method.name!r}: its clients send nothing, so "
            "the server "
            "does not know which items are popular",
            "choose a method with a server; `solera methods` shows the aggregates",
        )
    return replace(method, popularity_power=config.popularity_power)
