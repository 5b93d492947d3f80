"""Replies of nodes, each fetched by itself.

Flower announces a reply before its arrays are there, and `Grid.pull_messages` fetches announced replies one
after the other. A node whose line breaks in the middle of an upload, or that never means to finish it, would
hold up everybody's replies: for three minutes, or for as long as two hours.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any, NamedTuple

from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.message_pb2 import Message as Announced
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    inflate_object_from_contents,
    pull_objects,
)
from flwr.superlink.grid.http_grid import HttpGrid


class Reply(NamedTuple):
    """A reply to a message; or why there is none."""

    question: str
    message: Message | None
    error: str = ""


class Replies:
    """Fetches replies side by side, and gives up those that are not whole after so many seconds."""

    def __init__(self, grid: Grid, seconds: float) -> None:
        self._grid, self._seconds = grid, seconds
        self._fetched: SimpleQueue[Reply] = SimpleQueue()
        self._fetching: set[str] = set()

    def arrived(self, asked: Iterable[str]) -> list[Reply]:
        """The replies to these messages that are here by now; each is returned once."""
        if not isinstance(self._grid, HttpGrid):  # in a simulation, where nothing breaks off
            return [_reply(message) for message in self._grid.pull_messages(asked)]
        questions = [each for each in asked if each not in self._fetching]
        if questions:
            # Flower announces a reply once.
            found = self._client.PullMessages(PullAppMessagesRequest(message_ids=questions))
            for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                self._fetching.add(message.metadata.reply_to_message_id)
                threading.Thread(target=self._fetch, args=(message, tree), daemon=True).start()
        replies = []
        while not self._fetched.empty():
            replies.append(self._fetched.get())
            self._fetching.discard(replies[-1].question)
        return replies

    @property
    def _client(self) -> Any:
        return self._grid._runtime_client  # type: ignore[attr-defined]

    def _fetch(self, announced: Announced, tree: ObjectTree) -> None:
        """Put the reply into the queue when it is whole, or when it is given up."""
        question = announced.metadata.reply_to_message_id
        try:
            self._fetched.put(_reply(self._whole(announced.metadata.message_id, tree)))
        except ObjectPullError as error:
            self._fetched.put(Reply(question, None, f"the upload was not finished: {error}"))
        except Exception as error:
            self._fetched.put(Reply(question, None, f"the reply could not be fetched: {error}"))

    def _whole(self, name: str, tree: ObjectTree) -> Message:
        grid = self._grid
        assert isinstance(grid, HttpGrid)
        run = grid.run.run_id
        pull = make_pull_object_fn_protobuf(
            pull_object_protobuf=self._client.PullObject, node=grid.node, run_id=run
        )
        names = [each.object_id for each in iterate_object_tree(tree)]
        contents = pull_objects(names, pull, max_time=self._seconds)
        done = ConfirmMessageReceivedRequest(node=grid.node, run_id=run, message_object_id=name)
        self._client.ConfirmMessageReceived(done)
        message = inflate_object_from_contents(name, contents)
        assert isinstance(message, Message)
        return message


def _reply(message: Message) -> Reply:
    question = message.metadata.reply_to_message_id
    if message.has_content():
        return Reply(question, message)
    return Reply(question, None, f"{message.error.code}: {message.error.reason}")
