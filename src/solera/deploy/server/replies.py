"""Replies of nodes, each fetched by itself.

Flower announces a reply before its arrays are there, and `Grid.pull_messages` fetches announced replies one
after the other. A node whose line breaks in the middle of an upload, or that never means to finish it, would
hold up everybody's replies: for three minutes, or for as long as two hours.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from functools import partial
from queue import SimpleQueue

from flwr.app import Message
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.superlink.grid import http_grid

_LOG = logging.getLogger(__name__)
_AT_ONCE = 256  # replies that are being fetched


class Replies:
    """Fetches replies side by side, and gives up those that are not whole after so many seconds."""

    def __init__(self, grid: Grid, seconds: float) -> None:
        self._grid = grid
        self._fetched: SimpleQueue[Message] = SimpleQueue()
        self._fetching: set[str] = set()
        # Flower's own limit is two hours.
        http_grid.pull_objects = partial(pull_objects, max_time=seconds)  # type: ignore[attr-defined]

    def arrived(self, asked: Iterable[str]) -> list[Message]:
        """The replies to these messages that are here by now; each is returned once."""
        if not isinstance(self._grid, http_grid.HttpGrid):  # in a simulation, where nothing breaks off
            return list(self._grid.pull_messages(asked))
        for question in self._announced([each for each in asked if each not in self._fetching]):
            if len(self._fetching) < _AT_ONCE:
                self._fetching.add(question)
                threading.Thread(target=self._fetch, args=(question,), daemon=True).start()
        found = []
        while not self._fetched.empty():
            found.append(self._fetched.get())
            self._fetching.discard(found[-1].metadata.reply_to_message_id)
        return found

    def _announced(self, asked: list[str]) -> list[str]:
        """Which of these messages have a reply, whole or not."""
        if not asked:
            return []
        client = self._grid._runtime_client  # type: ignore[attr-defined]
        response = client.PullMessages(PullAppMessagesRequest(message_ids=asked))
        return [each.metadata.reply_to_message_id for each in response.messages_list]

    def _fetch(self, question: str) -> None:
        found: list[Message] = []
        try:
            found = list(self._grid.pull_messages([question]))
        except Exception:
            _LOG.warning("a reply could not be fetched; it will be tried again", exc_info=True)
        for message in found:
            self._fetched.put(message)
        if not found:
            self._fetching.discard(question)
