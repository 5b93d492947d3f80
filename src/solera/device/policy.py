"""What the owner of a device allows, whatever a server asks for, and what the owner has agreed to.

A policy holds against every server. An agreement is about one federation: what was shown when the owner said
yes. `Policy.under` makes one out of both, and every message of a federation is checked against that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic import Field

from solera.core.frozen import Frozen
from solera.core.text import counted
from solera.device.store import Store
from solera.dp.accounting import concentrated_epsilon

_SETTING = "policy"
LEAST_NOISE = 0.5  # in clips: a sum with less counts as one without noise
_NO_NOISE = 1e-150  # in clips: what is less than that has no square to divide by


class Agreement(Frozen):
    """What a federation says that it will do, and what its owner agrees to."""

    masked: bool = Field(default=False, description="the server gets sums over many devices, nothing else")
    least_nodes: int | None = Field(default=None, ge=2, description="devices in such a sum, at the least")
    least_users: int | None = Field(default=None, ge=1, description="people in such a sum, at the least")
    groups: int = Field(default=1, ge=1, description="groups of devices with a sum of their own, at most")
    clip: float | None = Field(default=None, gt=0, description="longest upload of one person (L2 norm)")
    noise: float | None = Field(default=None, gt=0, description="noise on a sum that devices add, in clips")
    rounds: int = Field(default=0, ge=0, description="rounds that are planned")
    sums: int | None = Field(default=None, ge=1, description="sums without noise, at most")
    epsilon: float | None = Field(default=None, gt=0, description="ε spent over all rounds, at most")
    evaluations: float | None = Field(default=None, gt=0, description="ε of all evaluations, at most")

    def weaker_than(self, other: Agreement) -> list[str]:
        """What protects less here than in another agreement, in words."""
        found = {
            "it no longer masks uploads": other.masked and not self.masked,
            "it asks for fewer devices in a sum": (self.least_nodes or 0) < (other.least_nodes or 0),
            "it asks for fewer people in a sum": (self.least_users or 0) < (other.least_users or 0),
            "it makes more groups": self.groups > other.groups,
            "it lets uploads be longer": _or_infinity(self.clip) > _or_infinity(other.clip),
            "it adds less noise": (self.noise or 0.0) < (other.noise or 0.0),
            "it opens more sums without noise": _sums(self) > _sums(other),
            "it spends more ε": _or_infinity(self.epsilon) > _or_infinity(other.epsilon),
            "it asks for more evaluations": (self.evaluations or 0.0) > (other.evaluations or 0.0),
        }
        return [words for words, is_so in found.items() if is_so]


class Policy(Frozen):
    """Limits that hold against every server; the owner alone changes them."""

    least_nodes: int = Field(default=10, ge=2, description="Nodes that a masked sum is over, at the least.")
    least_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the whole signed roster that these nodes are, at the least.",
    )
    most_groups: int = Field(
        default=1000, ge=1, description="Groups of nodes that have a masked sum of their own, at most."
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
    sums_without_noise: int = Field(
        default=1,
        ge=0,
        description="Sums without noise that this device helps to open in all its life, at most.",
    )
    rounds_per_day: int = Field(default=96, ge=1, description="Uploads in 24 hours, at most.")
    epsilon: float | None = Field(default=None, gt=0, description="ε spent in one federation, at most.")
    total_epsilon: float | None = Field(
        default=None, gt=0, description="ε spent in all federations together, at most."
    )
    delta: float = Field(default=1e-5, gt=0, lt=1, description="δ that goes with ε.")
    evaluation_epsilon: float = Field(
        default=4.0, ge=0, description="ε of all answers to evaluations that ever leave, at most."
    )
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

    def under(self, agreed: Agreement) -> Policy:
        """The limits in one federation: whichever is stricter, the policy or what was agreed to."""
        epsilon = agreed.epsilon if agreed.masked else None  # otherwise the server adds the noise
        return self.model_copy(
            update={
                "allow_plain": self.allow_plain and not agreed.masked,
                "least_nodes": max(self.least_nodes, agreed.least_nodes or 0),
                "least_users": max(self.least_users, agreed.least_users or 0),
                "most_groups": min(self.most_groups, agreed.groups),
                "largest_clip": _stricter(min, self.largest_clip, agreed.clip),
                "least_noise": _stricter(max, self.least_noise, agreed.noise),
                "epsilon": _stricter(min, self.epsilon, epsilon),
                "sums_without_noise": _stricter(min, self.sums_without_noise, agreed.sums),
                "evaluation_epsilon": min(self.evaluation_epsilon, agreed.evaluations or 0.0),
            }
        )

    @property
    def enough_noise(self) -> float:
        """Noise, in clips, with which sums may be opened repeatedly. Without a limit of ε, none is enough.

        Noise that is drawn again and again averages out: what bounds that is ε over all rounds.
        """
        return math.inf if self.epsilon is None and self.total_epsilon is None else LEAST_NOISE

    def conflicts(self, asked: Agreement) -> list[str]:
        """What this policy forbids of an offer, in words: such rounds would be declined."""
        found = []
        if not asked.masked:
            found += [] if self.allow_plain else ["your policy allows only masked rounds"]
        else:
            if asked.least_nodes is not None and asked.least_nodes < self.least_nodes:
                found.append(
                    f"your policy asks for sums over at least {self.least_nodes} devices,"
                    f" not {asked.least_nodes}"
                )
            if asked.epsilon is None and (asked.sums or 1) > self.sums_without_noise:
                found.append(
                    f"your policy allows {self.sums_without_noise} sums without noise, not {asked.sums}"
                )
        limits = [each for each in (self.epsilon, self.total_epsilon) if each is not None]
        if limits and (asked.epsilon is None or asked.epsilon > min(limits)):
            spent = f"ε = {asked.epsilon:g}" if asked.epsilon else "no noise"
            found.append(f"your policy allows ε of {min(limits):g} at most, not {spent}")
        if (asked.evaluations or 0.0) > self.evaluation_epsilon:
            found.append(
                f"your policy allows evaluations of ε = {self.evaluation_epsilon:g} in all,"
                f" not {asked.evaluations:g}"
            )
        return found

    def sentences(self, asked: Agreement) -> list[str]:
        """What an owner agrees to with an offer, in words. The device holds the server to every number."""
        mine, found = self.under(asked), []
        if asked.masked:
            found.append(
                f"Your upload is hidden in a sum over at least {mine.least_nodes} devices"
                f" and {mine.least_users} people."
            )
            if mine.epsilon is not None:
                found.append(
                    "Every device adds noise. Your device spends at most"
                    f" ε = {mine.epsilon:.3g} over all rounds."
                )
            else:
                found.append(
                    "No noise is added. Your device helps to open at most"
                    f" {counted(mine.sums_without_noise, 'sum', 'sums')}."
                )
        else:
            found.append("The server sees what your device uploads. An upload can show which items you have.")
            found.append(
                f"The server says that it adds noise to what is learned, ε = {asked.epsilon:.3g}."
                " Your device cannot check that."
                if asked.epsilon
                else "No noise is added to what is learned."
            )
        found.append(
            "The server may ask whether it ranks your newest item high. The answers cost at most"
            f" ε = {mine.evaluation_epsilon:g} in all."
            if mine.evaluation_epsilon
            else "The server may not ask whether it ranks your items high."
        )
        return found


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
    roster: int  # nodes that are on the signed list, in whatever group
    users: int  # asked on those that stay, at the least
    clip: float | None
    noise: float | None  # on the sum, in clips
    groups: int = 1
    sums: int = 0  # without enough noise, that this device has helped to open


def is_noisy(noise: float | None) -> bool:
    """Whether a sum has enough noise to be opened more than once."""
    return noise is not None and noise >= LEAST_NOISE


def objections(policy: Policy, request: Request, spent: Spent) -> Iterator[str]:
    """Why the owner does not allow a masked round; nothing if it is allowed."""
    least = max(policy.least_nodes, math.ceil(policy.least_share * request.roster - 1e-9))
    if request.nodes < least:
        yield f"a sum over {request.nodes} of {request.roster} nodes; this device requires {least}"
    if request.groups > policy.most_groups:
        yield f"{request.groups} groups; this device allows {policy.most_groups}"
    if request.users < policy.least_users:
        yield f"a sum over {request.users} users; this device requires {policy.least_users}"
    if policy.largest_clip is not None and not (request.clip and request.clip <= policy.largest_clip):
        asked = "no clip" if request.clip is None else f"a clip of {request.clip:g}"
        yield f"{asked}; this device allows {policy.largest_clip:g}"
    if policy.least_noise is not None and not (request.noise and request.noise >= policy.least_noise):
        asked = "no noise" if request.noise is None else f"noise of {request.noise:g} clips"
        yield f"{asked}; this device requires {policy.least_noise:g}"
    if (request.noise or 0.0) < policy.enough_noise and request.sums >= policy.sums_without_noise:
        without = "a limit of ε" if is_noisy(request.noise) else "noise"
        yield (
            f"this device has helped to open {request.sums} sums without {without}, and its owner allows"
            f" {policy.sums_without_noise}: several sums together can show what one person has"
        )
    after = spent.after(request.noise)
    for limit, sum_, where in (
        (policy.epsilon, after.here, "in this federation"),
        (policy.total_epsilon, after.everywhere, "in all federations"),
    ):
        if limit is not None and (epsilon := concentrated_epsilon(sum_, policy.delta)) > limit:
            yield f"ε would be {epsilon:.3g} {where}; this device allows {limit:g}"


def _or_infinity(limit: float | None) -> float:
    return math.inf if limit is None else limit


def _sums(agreed: Agreement) -> float:
    """How many sums without noise may be opened: none where uploads are not masked, or ε limits them."""
    if not agreed.masked or (is_noisy(agreed.noise) and agreed.epsilon is not None):
        return 0
    return _or_infinity(agreed.sums)


def _stricter(choose: Callable[..., float], mine: float | None, theirs: float | None) -> float | None:
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    return choose(mine, theirs)
