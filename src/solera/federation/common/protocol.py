"""Messages between server and nodes: plain fields and named arrays."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solera.core.errors import SoleraError
from solera.device.policy import Agreement
from solera.device.tensors import Arrays

# The version that every message carries. Neighbours read each other, so that server and devices need not be
# upgraded together: a version sends no field that the one before it does not read.
PROTOCOL = 5


class Reason(StrEnum):
    """Reason for refusing a message; refusals are counted by reason."""

    NO_REPLY = "no-reply"
    PROTOCOL = "protocol"  # the other side has another version of Solera
    CONSENT = "consent"  # the owner has not agreed to this federation
    POLICY = "policy"  # the owner does not allow it
    LEDGER = "ledger"  # this device has been in the round before
    FAULTY = "faulty"  # no honest node sends this
    FAILED = "failed"  # the transport says that the node could not answer
    DECLINED = "declined"  # the node itself says so, and why
    LATE = "late"
    TWICE = "twice"
    MALFORMED = "malformed"
    FEDERATION = "federation"
    ROUND = "round"
    CATALOGUE = "catalogue"
    MEMBERS = "members"
    NAMES = "names"
    SHAPES = "shapes"
    NOT_FINITE = "not-finite"
    NORM = "norm"
    SECURE = "secure-aggregation"  # the protocol of masked sums refuses it


MESSAGE = "message"  # the array with the bytes that the protocol of masked sums has made


class RefusalError(SoleraError):
    """A message that is refused."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Packet:
    """One message, in either direction."""

    fields: dict[str, Any]
    arrays: Arrays = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The whole content in one order, whatever carries it: what a digest is taken of."""
        parts = [json.dumps(self.fields, sort_keys=True).encode()]
        for name in sorted(self.arrays):
            values = np.ascontiguousarray(self.arrays[name])
            parts += [f"{name}:{values.dtype.str}:{values.shape}".encode(), values.tobytes()]
        return b"\n".join(parts)

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of the fields and the arrays."""
        return len(json.dumps(self.fields)) + self.bytes

    @property
    def bytes(self) -> int:
        """Of the arrays."""
        return sum(values.nbytes for values in self.arrays.values())


Number = Annotated[int, Field(ge=0, lt=2**31)]
Version = Annotated[int, Field(ge=1, lt=2**31)]
Numbers = Annotated[list[Number], Field(max_length=1_000_000)]


class Fields(BaseModel):
    """Fields of a message, and nothing besides."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    protocol: int = PROTOCOL
    federation: str = Field(pattern="^[0-9a-f]{32}$")

    @classmethod
    def of(cls, packet: Packet) -> Self:
        """Read what a stranger sent."""
        check_spoken(packet)
        try:
            return cls.model_validate(packet.fields)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"]))[:100]
            raise RefusalError(Reason.MALFORMED, f"field {where}: {wrong['msg']}") from None


def check_spoken(packet: Packet) -> None:
    """Refuse a message of a distant version, of which nothing else is read, and one that is a refusal."""
    spoken = packet.fields.get("protocol", 1)
    if type(spoken) is not int or abs(spoken - PROTOCOL) > 1:
        raise RefusalError(
            Reason.PROTOCOL,
            f"the message uses protocol {str(spoken)[:20]}, and this side speaks {PROTOCOL}:"
            " update Solera on the side with the lower number",
        )
    declined = packet.fields.get("declined")
    if isinstance(declined, str):
        raise RefusalError(Reason.DECLINED, declined[:500])


class Offer(Fields):
    """Server to a node it does not know: what is offered, and who are you?

    `roster` is the signed list of nodes, in JSON: a node takes it if it continues the one it has.
    """

    agreement: Agreement
    roster: str | None = Field(default=None, max_length=1 << 21)


class Enrolment(Fields):
    """The answer: which catalogue the node has, and the slots of its users."""

    version: Version
    catalogue: str = Field(pattern="^[0-9a-f]{64}$")
    method: str = Field(max_length=200)
    slots: Numbers
    identity: str | None = Field(default=None, max_length=400)  # of a node that can mask, in base64


class Order(Fields):
    """Server to node: train these users from this state; or, without a round, take the final state.

    `accepted` names the last of the node's updates that the server has taken, `numbers` are those by which
    the users draw. The arrays are of catalogue `version`; the server's own is `newest`. With a `clip`, what a
    user sends is made no longer than that, and every user counts 1. `bound` does the same, and every user
    counts as the method says. With `hold_back`, users train without their last item, on which they can
    be evaluated, and the device recommends with the last published state, not with the one it trains from.
    """

    round: Number | None
    attempt: Number
    version: Version
    newest: Version
    accepted: str = Field(max_length=50)
    slots: Numbers
    numbers: Numbers
    clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    bound: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    hold_back: bool = False

    @property
    def token(self) -> str:
        """By which the server will name an update that answers this order."""
        return f"{self.round}.{self.attempt}"


class Answer(Fields):
    """Node to server: which users have trained, and who is there by now.

    `peak` is the median over those who trained of the largest number that each of them sends.
    """

    round: Number | None
    attempt: Number
    version: Version
    trained: Numbers
    slots: Numbers
    peak: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class Evaluation(Fields):
    """Server to node: how often would this state have ranked the users' held-back items high?

    The arrays are of catalogue `version`. Every user answers by randomized response with this ε.
    """

    version: Version
    slots: Numbers
    top: int = Field(ge=1, le=1000)
    epsilon: float = Field(gt=0, le=2, allow_inf_nan=False)


class Verdict(Fields):
    """Node to server: how many users answered, and how many of them with yes, after the flips."""

    users: Number
    yes: Number


class Step(Fields):
    """One message of a masked round, in either direction; what is said is in its bytes."""

    round: int = Field(ge=0, lt=2**31)
    attempt: int = Field(ge=0, lt=2**31)

    @property
    def token(self) -> str:
        """Which round of which federation."""
        return f"{self.federation}.{self.round}.{self.attempt}"


class MaskedAnswer(Step):
    """Node to server, with the masked upload: who is there by now. How many have trained is in the sum."""

    version: int = Field(ge=1, lt=2**31)
    slots: list[int] = Field(max_length=1_000_000)


def declined(message: str) -> Packet:
    """The answer of a node that will not, or cannot."""
    return Packet({"protocol": PROTOCOL, "declined": message})
