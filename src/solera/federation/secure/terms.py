"""The terms of a masked round: everything that shapes an upload or its protection, the same for all members.

The digest of the terms is the session of secure aggregation. So it is in every key that a mask is made of, in
every signature and in what members confirm to each other: uploads made under different terms share no masks,
and nobody helps to open their sum.

What a server must say to one node alone (which of its users train, and by which numbers they draw) is a task.
The terms hold a digest of every member's task, with a salt so that other members cannot guess it, and say how
many users it asks for, so that every member can see over how many users a sum is.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from functools import cached_property
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from solera.core.closed_form import AnyMethod
from solera.core.fixed_point import FixedPoint, lengths
from solera.device.bundle import CATALOGUE, Manifest
from solera.device.tensors import Arrays
from solera.federation.common.protocol import (
    Numbers,
    Packet,
    Reason,
    RefusalError,
    Step,
    Version,
    check_spoken,
)
from solera.federation.secure.masked import encoding_of
from solera.federation.secure.roster import Roster
from solera.federation.secure.shares import whole_share
from solera.privacy.secagg import SecAggError, Setup
from solera.privacy.secagg.setup import MAX_CLIENTS

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Nonce = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
RANGE = 8.0  # standard deviations of noise that the encoding has room for
_FROZEN = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Member(BaseModel):
    """One node of a round."""

    model_config = _FROZEN

    key: str = Field(max_length=400, description="public, in base64")
    users: int = Field(ge=0, lt=2**31, description="asked to train")
    task: Digest


class NodeGroup(BaseModel):
    """Nodes whose uploads are summed together, and how many of them must stay to the end."""

    model_config = _FROZEN

    threshold: int = Field(ge=2, le=MAX_CLIENTS)
    members: Annotated[tuple[Member, ...], Field(strict=False, max_length=MAX_CLIENTS)]

    @property
    def users(self) -> int:
        """Number of users asked on all members."""
        return sum(member.users for member in self.members)


class RoundTerms(Step):
    """What the server proposes, with `advertise`, to all members alike."""

    model_config = _FROZEN

    nonce: Nonce = Field(description="random: no two rounds have the same terms")
    state: Digest = Field(description="of the parameters to train from")
    model: Digest = Field(description="of method, options and catalogue: see `model_digest`")
    roster: Digest = Field(description="of the signed list of nodes")
    capacity: int = Field(ge=1, lt=2**31, description="users of one node, at most")
    least_users: int = Field(ge=0, lt=2**31, description="asked on the survivors of a group, at the least")
    clip: float | None = Field(default=None, gt=0, description="longest upload of one user, all counting 1")
    noise: float | None = Field(default=None, gt=0, description="standard deviation on a sum, in clips")
    bound: float | None = Field(default=None, gt=0, description="longest upload of one user, weighted")
    groups: Annotated[tuple[NodeGroup, ...], Field(strict=False, min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        keys = [member.key for group in self.groups for member in group.members]
        if len(set(keys)) != len(keys):
            raise ValueError("a node is listed twice")
        if self.noise and not self.clip:
            raise ValueError("noise gives no guarantee without a clip")
        return self

    @classmethod
    def of(cls, packet: Packet) -> Self:
        """Parse the terms that a server sent."""
        check_spoken(packet)
        return cls.read(json.dumps(packet.fields))

    @classmethod
    def read(cls, text: str) -> Self:
        """What was written with `model_dump_json`."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise RefusalError(Reason.MALFORMED, f"terms: {error.errors()[0]['msg']}") from None

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 digest of the terms."""
        return _sha256("solera round terms", self)

    def group_of(self, key: str) -> int | None:
        """The group of a node, by its key."""
        for place, group in enumerate(self.groups):
            if any(member.key == key for member in group.members):
                return place
        return None

    def share_std(self, group: int) -> float:
        """Standard deviation of the noise that every node adds: a threshold of nodes adds all of it."""
        if not (self.clip and self.noise):
            return 0.0
        return self.clip * self.noise / math.sqrt(self.groups[group].threshold)

    def fixed_point(self, group: int, method: AnyMethod, n_items: int) -> FixedPoint:
        """How the numbers of an upload are written."""
        return FixedPoint.of(
            method,
            n_items,
            places=len(self.groups[group].members),
            users=self.capacity,
            bound=self.clip or self.bound,
            margin=RANGE * self.share_std(group),
        )

    def whole_share(self, group: int, method: AnyMethod, n_items: int) -> int:
        """The same in ulps of the encoding, and a little more for its rounding: see `shares`."""
        assert self.clip is not None
        return whole_share(
            self.fixed_point(group, method, n_items),
            sum(lengths(method, n_items).values()),
            clip=self.clip,
            std=self.share_std(group),
            users=self.capacity,
        )

    def setup(self, group: int, method: AnyMethod, n_items: int) -> Setup:
        """What secure aggregation needs for one group: all of it follows from the terms and the bundle."""
        members, threshold = self.groups[group].members, self.groups[group].threshold
        try:
            return Setup(
                session=hashlib.sha256(self.digest + group.to_bytes(4)).digest(),
                round=self.round,
                threshold=threshold,
                encoding=encoding_of(
                    method,
                    n_items,
                    self.fixed_point(group, method, n_items),
                    members=len(members),
                    capacity=self.capacity,
                ),
                roster=tuple(base64.b64decode(member.key, validate=True) for member in members),
            )
        except (ValidationError, ValueError, SecAggError) as error:
            said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise RefusalError(Reason.SECURE, f"a round with these members is not possible: {said}") from None


class Task(Step):
    """Server to one node, with `mask`: which of its users train. See `Order` for the fields."""

    version: Version
    newest: Version
    accepted: str = Field(max_length=50)
    slots: Numbers
    numbers: Numbers
    salt: Nonce

    @property
    def digest(self) -> str:
        """As the terms have it."""
        return _sha256("solera task", self).hex()


def model_digest(manifest: Manifest) -> str:
    """Digest of everything in a bundle that training depends on, except parameters."""
    parts = ("method", "plugins", "options", "precision", "catalogue_version", "items", "seed")
    content = {part: getattr(manifest, part) for part in parts} | {"catalogue": manifest.sha256[CATALOGUE]}
    return hashlib.sha256(b"solera model\0" + _canonical(content)).hexdigest()


def state_digest(shared: Arrays) -> str:
    """Digest of the parameters that all members train from."""
    return Packet({}, shared).digest


def groups_of(roster: Roster, count: int) -> list[list[str]]:
    """The roster in so many groups of about one size, in an order that follows from the roster alone.

    Neither the server nor a node can choose who is in a group: the digest of the roster is part of what
    orders it, so only whoever signs the roster could, who names the nodes anyway.
    """
    digest = roster.digest  # takes as long as the list: once, not once for every node
    keys = sorted(roster.nodes.values(), key=lambda key: hashlib.sha256(f"{digest} {key}".encode()).digest())
    return [keys[place::count] for place in range(count)]


def _sha256(purpose: str, model: BaseModel) -> bytes:
    return hashlib.sha256(purpose.encode() + b"\0" + _canonical(model.model_dump(mode="json"))).digest()


def _canonical(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
