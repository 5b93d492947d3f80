"""What server and edge say to each other: the orders of many members in one message, and their answers.

Arrays and fields that are the same for several members are in a relay once. An answer to a relay holds the
members' boxes one after the other and, where the server has asked for it, sums of their masked vectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solera.deploy.common.envelopes import Stamp
from solera.deploy.common.protocol import Fields, Packet, Reason, RefusalError, check_spoken
from solera.device.tensors import Arrays

BOX, VECTOR = "box", "vector"  # arrays of a member's answer to its edge
_BOXES, _SUM, _ENVELOPE, _FIELDS = "boxes", "sum-", "envelope", "fields"
_MOST = 4096  # members of one edge
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)
Member = Annotated[int, Field(ge=0, lt=2**63)]
Members = Annotated[list[Member], Field(max_length=_MOST)]


class _Text(Fields):
    """Fields with lists of fields in them."""

    @classmethod
    def of(cls, packet: Packet) -> Self:
        """Read what a stranger sent."""
        check_spoken(packet)
        try:
            return cls.model_validate_json(json.dumps(packet.fields))
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"]))[:100]
            raise RefusalError(Reason.MALFORMED, f"field {where}: {wrong['msg']}") from None


class Greeting(_Text):
    """An edge's answer to an offer: it is an edge, and these members are there."""

    edge: Literal[True] = True
    here: Members


class OrderFor(BaseModel):
    """One member's order: where its fields and arrays are in the relay, and the server's signature."""

    model_config = _STRICT

    member: Member
    fields: int = Field(ge=0)
    arrays: dict[str, int]
    signature: str = Field(max_length=200)


class Adding(BaseModel):
    """Members whose masked vectors are to be added up, and how these are written."""

    model_config = _STRICT

    bits: Literal[32, 64]
    bytes: int = Field(ge=0, lt=2**31)
    members: Members


class Relay(_Text):
    """Server to edge: orders of one kind. The edge answers after `seconds` at the latest.

    Once most members have answered, it waits `wait` seconds longer for members that hang.
    """

    kind: str = Field(max_length=20)
    seconds: float = Field(gt=0, allow_inf_nan=False)
    wait: float = Field(ge=0, allow_inf_nan=False)
    stamp: Stamp
    orders: Annotated[list[OrderFor], Field(max_length=_MOST)]
    adding: Annotated[list[Adding], Field(max_length=1000)]


class Relayed(_Text):
    """Edge to server: the length of every member's box, whose vectors were added up, and who is there."""

    boxes: dict[Member, int] = Field(max_length=_MOST)
    sums: Annotated[list[Members], Field(max_length=1000)]
    here: Members


class Pool:
    """Arrays by number, each once."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def add(self, values: NDArray[Any]) -> int:
        """The number of an array."""
        plain = np.ascontiguousarray(values).reshape(values.shape)
        key = (plain.dtype.str, plain.shape, plain.tobytes())
        if key not in self._known:
            self._known[key] = len(self._known)
            self.arrays[str(self._known[key])] = plain
        return self._known[key]


def envelope(stamp: Stamp, signature: str, text: str, arrays: Arrays) -> Packet:
    """An order as a member gets it from its edge."""
    head = {_ENVELOPE: stamp.model_dump(), "signature": signature, _FIELDS: text}
    return Packet(head, arrays)


def from_envelope(packet: Packet) -> tuple[Stamp, str, Packet]:
    """What the server has sent with an order, its signature and the order itself."""
    try:
        stamp = Stamp.model_validate(packet.fields[_ENVELOPE])
        fields = json.loads(packet.fields[_FIELDS])
        signature = packet.fields["signature"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise RefusalError(
            Reason.EDGE, "the order is not signed by a server: this node was started behind an edge"
        ) from None
    if not isinstance(fields, dict) or not isinstance(signature, str):
        raise RefusalError(Reason.MALFORMED, "the fields are not a JSON object")
    return stamp, signature, Packet(fields, packet.arrays)


def orders_of(relay: Relay, arrays: Mapping[str, NDArray[Any]]) -> dict[int, Packet]:
    """What an edge sends to every member."""
    try:
        return {
            each.member: envelope(
                relay.stamp,
                each.signature,
                arrays[str(each.fields)].tobytes().decode(),
                {name: arrays[str(number)] for name, number in each.arrays.items()},
            )
            for each in relay.orders
        }
    except (KeyError, ValueError):
        raise RefusalError(Reason.MALFORMED, "a relay lacks some of its arrays") from None


def relayed(
    federation: str, boxes: Mapping[int, bytes], sums: list[tuple[list[int], NDArray[Any]]], here: list[int]
) -> Packet:
    """An edge's answer to a relay."""
    fields = Relayed(
        federation=federation,
        boxes={member: len(box) for member, box in boxes.items()},
        sums=[members for members, _ in sums],
        here=here,
    )
    arrays = {f"{_SUM}{place}": values.view(np.uint8) for place, (_, values) in enumerate(sums)}
    arrays[_BOXES] = np.frombuffer(b"".join(boxes.values()), np.uint8)
    return Packet(fields.model_dump(mode="json"), arrays)


def read_relayed(packet: Packet) -> tuple[Relayed, dict[int, bytes], list[bytes]]:
    """Its fields, the boxes by member and the sums; an error if they do not fit together."""
    said, arrays = Relayed.of(packet), dict(packet.arrays)
    names = {_BOXES, *(f"{_SUM}{place}" for place in range(len(said.sums)))}
    if arrays.keys() != names or any(v.dtype != np.uint8 or v.ndim != 1 for v in arrays.values()):
        raise RefusalError(Reason.NAMES, "the arrays are not those of an edge's answer")
    data, at, boxes = arrays[_BOXES].tobytes(), 0, dict[int, bytes]()
    for member, length in said.boxes.items():
        boxes[member] = data[at : at + max(0, length)]
        at += max(0, length)
    if at != len(data):
        raise RefusalError(Reason.SHAPES, "the boxes are not as long as the edge says")
    return said, boxes, [arrays[f"{_SUM}{place}"].tobytes() for place in range(len(said.sums))]
