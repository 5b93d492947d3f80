"""Replies are fetched side by side. Flower's side is played here; test_bad_network.py has the real one."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the deploy extra")

from flwr.superlink.grid import http_grid
from flwr.superlink.grid.http_grid import HttpGrid

from solera.deploy.server.replies import Replies


def reply(question: str) -> Any:
    return SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=question))


class PlayedGrid(HttpGrid):
    """Announces replies; those in `unfinished` are not whole until they are let go."""

    def __init__(self, announced: list[str], unfinished: tuple[str, ...] = ()) -> None:
        self.announced, self.unfinished = announced, dict.fromkeys(unfinished)
        self.whole = threading.Event()
        self.asked: list[str] = []
        self.fails = 0

    @property
    def _runtime_client(self) -> Any:
        def pull(request: Any) -> Any:
            there = [each for each in self.announced if each in request.message_ids]
            return SimpleNamespace(messages_list=[reply(each) for each in there])

        return SimpleNamespace(PullMessages=pull)

    def pull_messages(self, message_ids: Any) -> list[Any]:
        (question,) = message_ids
        self.asked.append(question)
        if self.fails:
            self.fails -= 1
            raise OSError("the line is down")
        if question in self.unfinished:
            self.whole.wait(10)
        self.announced.remove(question)
        return [reply(question)]


def gathered(replies: Replies, asked: list[str], count: int) -> list[str]:
    found: list[str] = []
    end = time.monotonic() + 5
    while len(found) < count and time.monotonic() < end:
        left = [each for each in asked if each not in found]
        found += [message.metadata.reply_to_message_id for message in replies.arrived(left)]
        time.sleep(0.01)
    return sorted(found)


@pytest.fixture(autouse=True)
def flower_as_it_was(monkeypatch):
    monkeypatch.setattr(http_grid, "pull_objects", vars(http_grid)["pull_objects"])


def test_an_unfinished_upload_holds_up_nobody():
    grid = PlayedGrid(["a", "b", "c"], unfinished=("a",))
    replies = Replies(grid, seconds=7)
    assert gathered(replies, ["a", "b", "c", "d"], 2) == ["b", "c"]
    grid.whole.set()
    assert gathered(replies, ["a", "d"], 1) == ["a"]
    assert sorted(grid.asked) == ["a", "b", "c"], "each is fetched once"


def test_a_failed_fetch_is_tried_again():
    grid = PlayedGrid(["a"])
    grid.fails = 2
    assert gathered(Replies(grid, seconds=7), ["a"], 1) == ["a"]
    assert grid.asked == ["a"] * 3


def test_flower_gives_an_upload_up_at_the_deadline():
    Replies(PlayedGrid([]), seconds=7)
    assert vars(http_grid)["pull_objects"].keywords == {"max_time": 7}


def test_in_a_simulation_flower_does_all():
    grid: Any = SimpleNamespace(pull_messages=lambda asked: [reply(each) for each in asked])
    found = Replies(grid, seconds=7).arrived(["a", "b"])
    assert [each.metadata.reply_to_message_id for each in found] == ["a", "b"]
