"""What the owner of a device allows, whatever a server asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from solera.core.frozen import Frozen
from solera.device.store import Store
from solera.dp.accounting import concentrated_epsilon

_SETTING = "policy"
_NO_NOISE = 1e-150  # in clips: what is less than that has no square to divide by


class Policy(Frozen):
    """Limits that hold against every server; the owner alone changes them."""

    least_nodes: int = Field(default=10, ge=2, description="Nodes that a masked sum is over, at the least.")
    least_share: float = Field(
        default=0.5, gt=0, le=1, description="Share of the signed roster that these nodes are, at the least."
    )
    least_users: int = Field(default=10, ge=1, description="Users that a masked sum is over, at the least.")
    least_own_users: int = Field(
        default=1, ge=1, description="Users of this device who train in a masked round, at the least."
    )
    largest_clip: float | None = Field(
        default=None, gt=0, description="Longest upload of one user (L2 norm) that may leave the device."
    )
    least_noise: float | None = Field(
        default=None,
        gt=0,
        description="Noise on a masked sum, in clips, at the least: rounds without it are refused.",
    )
    rounds_per_day: int = Field(default=96, ge=1, description="Uploads in 24 hours, at most.")
    epsilon: float | None = Field(default=None, gt=0, description="ε spent in one federation, at most.")
    total_epsilon: float | None = Field(
        default=None, gt=0, description="ε spent in all federations together, at most."
    )
    delta: float = Field(default=1e-5, gt=0, lt=1, description="δ that goes with ε.")
    allow_plain: bool = Field(
        default=True,
        description="Answer rounds without masks, whose uploads the server sees.",
    )

    @classmethod
    def read(cls, store: Store) -> Policy:
        """The device's policy; the defaults if its owner has decided nothing."""
        text = store.settings().get(_SETTING)
        return cls() if text is None else cls.model_validate_json(text)

    def write(self, store: Store) -> None:
        """Make it the device's policy."""
        store.set(_SETTING, self.model_dump_json())


@dataclass(frozen=True)
class Spent:
    """Privacy that is gone: the sum of (1 / noise)² over uploads, here and in all federations together.

    Noise is in clips. An upload without noise counts as infinity.
    """

    here: float = 0.0
    everywhere: float = 0.0

    def after(self, noise: float | None) -> Spent:
        """The same with one more upload."""
        cost = cost_of(noise)
        return Spent(self.here + cost, self.everywhere + cost)


def cost_of(noise: float | None) -> float:
    """(1 / noise)² of one upload; infinity without noise, or with next to none."""
    return math.inf if noise is None or noise < _NO_NOISE else noise**-2


@dataclass(frozen=True)
class Request:
    """What a masked round asks of a device."""

    nodes: int  # that must stay to the end
    roster: int  # nodes that might be among them
    users: int  # asked on those that stay, at the least
    clip: float | None
    noise: float | None  # on the sum, in clips


def objections(policy: Policy, request: Request, spent: Spent) -> Iterator[str]:
    """Why the owner does not allow a masked round; nothing if it is allowed."""
    least = max(policy.least_nodes, math.ceil(policy.least_share * request.roster - 1e-9))
    if request.nodes < least:
        yield f"a sum over {request.nodes} of {request.roster} nodes; this device requires {least}"
    if request.users < policy.least_users:
        yield f"a sum over {request.users} users; this device requires {policy.least_users}"
    if policy.largest_clip is not None and not (request.clip and request.clip <= policy.largest_clip):
        asked = "no clip" if request.clip is None else f"a clip of {request.clip:g}"
        yield f"{asked}; this device allows {policy.largest_clip:g}"
    if policy.least_noise is not None and not (request.noise and request.noise >= policy.least_noise):
        asked = "no noise" if request.noise is None else f"noise of {request.noise:g} clips"
        yield f"{asked}; this device requires {policy.least_noise:g}"
    after = spent.after(request.noise)
    for limit, sum_, where in (
        (policy.epsilon, after.here, "in this federation"),
        (policy.total_epsilon, after.everywhere, "in all federations"),
    ):
        if limit is not None and (epsilon := concentrated_epsilon(sum_, policy.delta)) > limit:
            yield f"ε would be {epsilon:.3g} {where}; this device allows {limit:g}"
