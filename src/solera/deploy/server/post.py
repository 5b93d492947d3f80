"""Messages to nodes and their replies, with all their parts in one request where the server allows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

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
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid.http_grid import HttpGrid

from solera.deploy.common.frames import LARGEST, RECEIVE, SEND, exchange, pack, unpack
from solera.deploy.common.retries import until_answered
from solera.deploy.server.replies import Reply, Unfinished, read

_BUSY = 60.0  # seconds for which a busy server is asked again


class Post:
    """A grid of Flower's, by fewer requests if it is one over a network to a guarded server.

    A reply that is not whole after so many seconds is given up.
    """

    def __init__(self, grid: Grid, seconds: float) -> None:
        self._grid = grid
        self._express = isinstance(grid, HttpGrid)
        self._by_flower: set[str] = set()  # messages that were sent by Flower's requests
        self._unfinished = Unfinished(grid, seconds) if isinstance(grid, HttpGrid) else None

    def online(self) -> set[int]:
        """Numbers of the nodes that are there."""
        return set(self._grid.get_node_ids())

    def push(self, messages: Sequence[Message]) -> list[str]:
        """Send messages; returns their names, empty for one that was not sent."""
        if not self._express:
            return self._pushed(messages)
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
                    sent += self._pushed(some)
                    continue
                try:
                    answer = self._ask(SEND, pack(request, parts))
                except httpx.HTTPStatusError as error:
                    if error.response.status_code != httpx.codes.NOT_FOUND:
                        raise
                    self._express = False  # Flower alone
                    return sent + self._pushed(messages[len(sent) :])
                sent += PushAppMessagesResponse.FromString(answer).message_ids
        return sent

    def _pushed(self, messages: Sequence[Message]) -> list[str]:
        """Send messages by Flower's requests."""
        names = list(self._grid.push_messages(messages))
        self._by_flower.update(names)
        return names

    def pull(self, names: Sequence[str]) -> list[Reply]:
        """Replies that have come to messages of these names; each is returned once."""
        if self._unfinished is None:  # in a simulation, where nothing breaks off
            return [Reply.of(message) for message in self._grid.pull_messages(names)]
        asked = {name for name in names if name not in self._unfinished.questions}
        replies = []
        for found, parts in self._announced(asked):
            for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                wanted = dict.fromkeys(each.object_id for each in iterate_object_tree(tree))
                own = {name: parts[name] for name in wanted if name in parts}
                if len(own) == len(wanted):
                    replies.append(read(message.metadata.reply_to_message_id, tree, own))
                else:
                    self._unfinished.fetch(message, tree, own)
        return replies + self._unfinished.done()

    def _announced(self, asked: Set[str]) -> Iterator[tuple[PullAppMessagesResponse, dict[str, bytes]]]:
        """Replies that have come, once each, and those of their parts that are there."""
        by_flower = asked & self._by_flower if self._express else asked
        if by_flower:
            yield self._client.PullMessages(PullAppMessagesRequest(message_ids=by_flower)), {}
        if by_express := asked - by_flower:
            request = PullAppMessagesRequest(message_ids=by_express)
            head, parts = unpack(self._ask(RECEIVE, request.SerializeToString()))
            yield PullAppMessagesResponse.FromString(head), parts

    def _ask(self, path: str, body: bytes) -> bytes:
        """Ask the server, again while it is busy: it has then done nothing."""
        return until_answered(lambda: exchange(self._client, path, body), _is_busy, _BUSY)

    @property
    def _client(self) -> RuntimeHttpClient:
        assert isinstance(self._grid, HttpGrid)
        return self._grid._runtime_client


def _is_busy(error: httpx.HTTPError) -> bool:
    status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
    return status == httpx.codes.SERVICE_UNAVAILABLE


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
