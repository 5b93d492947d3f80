"""Several texts in one: each after its length. Used where one request does what Flower does in many.

Nodes and the server's app send such requests through Flower's own clients, which sign them; the guard answers
them, see express.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import Message as Head
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.protobuf.client import ProtobufClient, ProtobufRequestContext

TAKE, GIVE = "/v1/fleet/take", "/v1/fleet/give"  # of a node: a message with all its parts, and its reply
SEND, RECEIVE = "/v1/runtime/send", "/v1/runtime/receive"  # of the server's app: messages, and replies
LARGEST = 8 << 20  # bytes of parts in one request
LARGEST_AT_EDGE = 272 << 20  # … to an edge, which takes no other: 2^26 masked numbers of 32 bits, and more
_LENGTH = struct.Struct("<I")


def join_frames(frames: Iterable[bytes]) -> bytes:
    """All of them, in one text."""
    return b"".join(part for frame in frames for part in (_LENGTH.pack(len(frame)), frame))


def split_frames(text: bytes) -> list[bytes]:
    """The texts again; a ValueError if they are not whole."""
    found, at = [], 0
    while at < len(text):
        if at + _LENGTH.size > len(text):
            raise ValueError("a length is cut off")
        (length,) = _LENGTH.unpack_from(text, at)
        at += _LENGTH.size
        if at + length > len(text):
            raise ValueError("a text is cut off")
        found.append(text[at : at + length])
        at += length
    return found


def pack(head: Any, parts: dict[str, bytes]) -> bytes:
    """A message of Flower's protocol, and named parts."""
    pairs = (text for name, content in parts.items() for text in (name.encode(), content))
    return join_frames([head.SerializeToString(), *pairs])


def unpack(text: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Both again; a ValueError if they are not whole. Of an empty text, both are empty."""
    frames = split_frames(text)
    if frames and len(frames) % 2 == 0:
        raise ValueError("a part without content")
    names = (name.decode("ascii") for name in frames[1::2])
    return (frames[0] if frames else b""), dict(zip(names, frames[2::2], strict=True))


def in_parts(message: Message) -> tuple[Head, ObjectTree, dict[str, bytes]]:
    """A message as Flower sends it: its head, the names of all its parts, and their contents."""
    message.metadata.__dict__["_message_id"] = message.object_id
    with no_object_id_recompute():
        head = message_to_proto(remove_content_from_message(message) if message.has_content() else message)
        parts = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        return head, get_object_tree(message), parts


def exchange(client: ProtobufClient, path: str, body: bytes, message: Any = None) -> bytes:
    """Send bytes through one of Flower's clients; an error for every status but 200."""
    request = client._client.build_request("POST", f"{client._base_url}{path}", content=body)
    answer = client._send(ProtobufRequestContext(rpc_method=path, message=message, request=request))
    answer.raise_for_status()
    return bytes(answer.content)
