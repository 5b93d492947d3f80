"""Messages between the server's app and its nodes, in memory until they are answered or too old.

Flower stores a message and each of its parts in a database: dozens of statements for one question and its
answer. Most messages of a round are small and worth nothing after it. They wait here instead. Large ones
still go through Flower's database, see express.py.

If the server is restarted, all messages are lost. The app is told so when it asks for the answers, and the
round goes on without them or is repeated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.proto.message_pb2 import Message, ObjectTree
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

MOST = 1 << 30  # bytes of all messages and answers together
Parts = Mapping[str, bytes]


class FullError(Exception):
    """There is no room for more messages."""


@dataclass(frozen=True)
class Content:
    """A message as Flower's protocol has it, and all its parts, by name."""

    head: Message
    tree: ObjectTree
    parts: Parts

    @classmethod
    def of(cls, head: Message, tree: ObjectTree, parts: Parts) -> Content:
        """A message of these parts, among others; a ValueError if one is missing."""
        names = dict.fromkeys(each.object_id for each in iterate_object_tree(tree))
        if not parts.keys() >= names.keys():
            raise ValueError("a message without all its parts")
        return cls(head, tree, {name: parts[name] for name in names})

    @property
    def size(self) -> int:
        """Bytes of its parts."""
        return sum(map(len, self.parts.values()))


@dataclass
class Letter:
    """A message to a node, and its answer once there is one."""

    question: Content
    run: int
    node: int
    until: float
    answer: Content | None = None

    @property
    def size(self) -> int:
        """Bytes of both."""
        return self.question.size + (self.answer.size if self.answer else 0)


class Mailbox:
    """All messages that are under way. Threads may use it at once."""

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.time) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._letters: dict[str, Letter] = {}
        self._waiting: dict[int, dict[str, None]] = {}  # by node: messages it was not given yet, oldest first
        self._given: dict[int, str] = {}  # the message a node was given last, until it says that it has it
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes of all messages and answers. A part that several messages share counts for each."""
        return self._size

    def post(self, run: int, contents: Sequence[Content]) -> list[str]:
        """Keep the messages of a run for their nodes, all or none; returns their names.

        The app sends messages again if it got no answer. Those that are here already stay as they are.
        """
        with self._lock:
            self._forget(name for name, letter in self._letters.items() if letter.until < self._clock())
            new = [content for content in contents if content.tree.object_id not in self._letters]
            self._make_room(sum(content.size for content in new))
            for content in new:
                about = content.head.metadata
                letter = Letter(content, run, about.dst_node_id, about.created_at + about.ttl)
                self._letters[content.tree.object_id] = letter
                self._waiting.setdefault(letter.node, {})[content.tree.object_id] = None
        return [content.tree.object_id for content in contents]

    def next(self, node: int, received: Iterable[str]) -> Letter | None:
        """The node's next message; the last one again if the node does not say that it has received it."""
        with self._lock:
            last = self._given.pop(node, "")
            if last in self._letters and last not in received and not self._letters[last].answer:
                self._given[node] = last
                return self._letters[last]
            for name in [*self._waiting.get(node, ())]:
                letter = self._letters[name]
                self._no_longer_waits(name, letter)
                if letter.until >= self._clock():
                    self._given[node] = name
                    return letter
            return None

    def answer(self, node: int, content: Content) -> bool:
        """Keep a node's answer; False if no such question is here. A second answer changes nothing."""
        about = content.head.metadata
        with self._lock:
            letter = self._letters.get(about.reply_to_message_id)
            if letter is None or (letter.node, letter.run) != (node, about.run_id):
                return False
            if letter.answer is None:
                self._make_room(content.size)
                letter.answer = content
            return True

    def collect(self, run: int, names: Iterable[str]) -> tuple[list[Content], dict[str, int | None]]:
        """Answers, each once; and of the other messages the nodes that have them, None if one is not here."""
        answers: list[Content] = []
        others: dict[str, int | None] = {}
        with self._lock:
            for name in names:
                letter = self._letters.get(name)
                if letter is None or letter.run != run:
                    others[name] = None
                elif letter.answer is None:
                    others[name] = letter.node
                else:
                    answers.append(letter.answer)
                    self._forget([name])
        return answers, others

    def end(self, run: int) -> None:
        """Forget all messages of a run."""
        with self._lock:
            self._forget(name for name, letter in self._letters.items() if letter.run == run)

    def withdraw(self, names: Iterable[str]) -> None:
        """Forget messages that nobody will answer."""
        with self._lock:
            self._forget(name for name in names if name in self._letters)

    def _make_room(self, size: int) -> None:
        if self._size + size > self._most:
            raise FullError
        self._size += size

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            letter = self._letters.pop(name)
            self._size -= letter.size
            self._no_longer_waits(name, letter)
            if self._given.get(letter.node) == name:
                del self._given[letter.node]

    def _no_longer_waits(self, name: str, letter: Letter) -> None:
        waiting = self._waiting.get(letter.node, {})
        waiting.pop(name, None)
        if not waiting:
            self._waiting.pop(letter.node, None)
