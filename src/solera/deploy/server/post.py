"""Messages to nodes and their replies, with all their parts in one request where the server allows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import httpx
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid.http_grid import HttpGrid

from solera.deploy.common.frames import LARGEST, RECEIVE, SEND, exchange, pack, unpack


class Post:
    """A grid of Flower's, by fewer requests if it is one over a network to a guarded server."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._express = isinstance(grid, HttpGrid)

    def online(self) -> set[int]:
        """Numbers of the nodes that are there."""
        return set(self._grid.get_node_ids())

    def push(self, messages: Sequence[Message]) -> list[str]:
        """Send messages; returns their names, empty for one that was not sent."""
        if not self._express:
            return list(self._grid.push_messages(messages))
        with no_object_id_recompute():
            for message in messages:
                message.metadata.__dict__["_message_id"] = message.object_id
            sent: list[str] = []
            for some, parts in _batches(messages):
                request = PushAppMessagesRequest(
                    messages_list=[message_to_proto(remove_content_from_message(each)) for each in some],
                    message_object_trees=[get_object_tree(each) for each in some],
                )
                if sum(map(len, parts.values())) > LARGEST:
                    sent += self._grid.push_messages(some)
                    continue
                try:
                    answer = exchange(self._client, SEND, pack(request, parts))
                except httpx.HTTPStatusError as error:
                    if error.response.status_code != httpx.codes.NOT_FOUND:
                        raise
                    self._express = False  # Flower alone
                    return sent + list(self._grid.push_messages(messages[len(sent) :]))
                sent += PushAppMessagesResponse.FromString(answer).message_ids
        return sent

    def pull(self, names: Sequence[str]) -> list[Message]:
        """Replies that have come to messages of these names."""
        if not self._express:
            return list(self._grid.pull_messages(names))
        text = exchange(self._client, RECEIVE, PullAppMessagesRequest(message_ids=names).SerializeToString())
        head, parts = unpack(text)
        found = PullAppMessagesResponse.FromString(head)
        replies = []
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            wanted = dict.fromkeys(each.object_id for each in iterate_object_tree(tree))
            missing = [name for name in wanted if name not in parts]
            assert isinstance(self._grid, HttpGrid)
            pull = make_pull_object_fn_protobuf(
                self._client.PullObject, self._grid.node, message.metadata.run_id
            )
            contents = {name: parts[name] for name in wanted if name in parts}
            contents |= pull_objects(missing, pull, initial_backoff=0.1) if missing else {}
            reply = inflate_object_from_contents(tree.object_id, contents)
            assert isinstance(reply, Message)
            reply.metadata.__dict__["_message_id"] = tree.object_id
            replies.append(reply)
        return replies

    @property
    def _client(self) -> RuntimeHttpClient:
        assert isinstance(self._grid, HttpGrid)
        return self._grid._runtime_client


def _batches(messages: Sequence[Message]) -> Iterator[tuple[list[Message], dict[str, bytes]]]:
    """Messages with the contents of their parts, as many as one request may hold, and at least one."""
    some: list[Message] = []
    parts: dict[str, bytes] = {}
    for message in messages:
        new = {
            name: part.deflate()
            for name, part in get_all_nested_objects(message).items()
            if name not in parts
        }
        if some and sum(map(len, parts.values())) + sum(map(len, new.values())) > LARGEST:
            yield some, parts
            some, parts = [], {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
        else:
            parts |= new
        some.append(message)
    if some:
        yield some, parts
