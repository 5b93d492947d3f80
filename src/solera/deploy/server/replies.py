"""Replies of nodes whose parts are not all there yet, each fetched by itself.

Flower announces a reply before its arrays are there, and `Grid.pull_messages` fetches announced replies one
after the other. A node whose line breaks in the middle of an upload, or that never means to finish it, would
hold up everybody's replies: for three minutes, or for as long as two hours.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from queue import SimpleQueue
from typing import NamedTuple

from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.message_pb2 import Message as Announced
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    inflate_object_from_contents,
    pull_objects,
)
from flwr.superlink.grid.http_grid import HttpGrid

_WAIT = 0.1  # seconds until a part that is not there is asked for again, at first


class Reply(NamedTuple):
    """A reply to a message; or why there is none."""

    question: str
    message: Message | None
    error: str = ""

    @classmethod
    def of(cls, message: Message) -> Reply:
        """The reply that a message is. An error of the node is one, too."""
        question = message.metadata.reply_to_message_id
        if message.has_content():
            return cls(question, message)
        return cls(question, None, f"{message.error.code}: {message.error.reason}")


def read(question: str, tree: ObjectTree, parts: Mapping[str, bytes]) -> Reply:
    """The reply that these parts are. Whatever a node has made of them, this raises no error."""
    try:
        message = inflate_object_from_contents(tree.object_id, dict(parts))
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = tree.object_id
        return Reply.of(message)
    except Exception as error:
        return Reply(question, None, f"the reply cannot be read: {error}")


class Unfinished:
    """Fetches replies side by side, and gives up those that are not whole after so many seconds."""

    def __init__(self, grid: HttpGrid, seconds: float) -> None:
        self._grid, self._seconds = grid, seconds
        self._fetched: SimpleQueue[Reply] = SimpleQueue()
        self.questions: set[str] = set()  # whose replies are being fetched

    def fetch(self, announced: Announced, tree: ObjectTree, parts: Mapping[str, bytes]) -> None:
        """Begin to fetch the parts of a reply that are missing."""
        self.questions.add(announced.metadata.reply_to_message_id)
        threading.Thread(target=self._fetch, args=(announced, tree, parts), daemon=True).start()

    def done(self) -> list[Reply]:
        """The replies that have become whole, or were given up; each is returned once."""
        replies = []
        while not self._fetched.empty():
            replies.append(self._fetched.get())
            self.questions.discard(replies[-1].question)
        return replies

    def _fetch(self, announced: Announced, tree: ObjectTree, parts: Mapping[str, bytes]) -> None:
        question = announced.metadata.reply_to_message_id
        try:
            self._fetched.put(read(question, tree, self._all(announced, tree, parts)))
        except ObjectPullError as error:
            self._fetched.put(Reply(question, None, f"the upload was not finished: {error}"))
        except Exception as error:
            self._fetched.put(Reply(question, None, f"the reply could not be fetched: {error}"))

    def _all(self, announced: Announced, tree: ObjectTree, parts: Mapping[str, bytes]) -> dict[str, bytes]:
        """All parts, when they are there."""
        client, node, run = self._grid._runtime_client, self._grid.node, announced.metadata.run_id
        names = dict.fromkeys(each.object_id for each in iterate_object_tree(tree))
        missing = [name for name in names if name not in parts]
        pull = make_pull_object_fn_protobuf(client.PullObject, node, run)
        rest = pull_objects(missing, pull, max_time=self._seconds, initial_backoff=_WAIT)
        name = announced.metadata.message_id
        client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=name)
        )
        return {**parts, **rest}
