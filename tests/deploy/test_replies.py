"""Replies are fetched side by side. Flower's side is played here; test_bad_network.py has the real one."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the deploy extra")

from flwr.supercore.inflatable.inflatable_utils import ObjectPullError
from flwr.superlink.grid.http_grid import HttpGrid

from solera.deploy.server.replies import Replies, Reply


def message(question: str, error: str = "") -> Any:
    metadata = SimpleNamespace(reply_to_message_id=question, message_id=f"to {question}")
    problem = SimpleNamespace(code=1, reason=error)
    return SimpleNamespace(metadata=metadata, has_content=lambda: not error, error=problem)


class PlayedGrid(HttpGrid):
    """Announces each reply once, as Flower does."""

    def __init__(self, announced: list[str]) -> None:
        self.announced = announced

    @property
    def _runtime_client(self) -> Any:
        def pull(request: Any) -> Any:
            there = [each for each in self.announced if each in request.message_ids]
            self.announced = [each for each in self.announced if each not in there]
            return SimpleNamespace(messages_list=list(map(message, there)), message_object_trees=there)

        return SimpleNamespace(PullMessages=pull)


class PlayedReplies(Replies):
    """Replies that are whole at once, but for some."""

    late = threading.Event()

    def _whole(self, name: str, tree: Any) -> Any:
        if tree == "late":
            self.late.wait(10)
        if tree == "never":
            raise ObjectPullError("an array", "timeout")
        if tree == "broken":
            raise OSError("the line is down")
        return message(tree, "out of memory" if tree == "failed" else "")


def gathered(replies: Replies, asked: list[str], count: int) -> dict[str, Reply]:
    found: dict[str, Reply] = {}
    end = time.monotonic() + 5
    while len(found) < count and time.monotonic() < end:
        found |= {each.question: each for each in replies.arrived(set(asked) - found.keys())}
        time.sleep(0.01)
    return found


def test_an_unfinished_upload_holds_up_nobody():
    replies = PlayedReplies(PlayedGrid(["late", "b", "c"]), seconds=7)
    assert set(gathered(replies, ["late", "b", "c", "not answered"], 2)) == {"b", "c"}
    replies.late.set()
    assert gathered(replies, ["late", "not answered"], 1)["late"].message
    assert replies.arrived(["not answered"]) == []


def test_what_is_not_whole_says_why():
    asked = ["never", "broken", "failed", "b"]
    found = gathered(PlayedReplies(PlayedGrid([*asked]), seconds=7), asked, 4)
    assert [each for each in asked if found[each].message] == ["b"]
    assert "was not finished" in found["never"].error
    assert found["broken"].error == "the reply could not be fetched: the line is down"
    assert found["failed"].error == "1: out of memory"


def test_in_a_simulation_flower_does_all():
    grid: Any = SimpleNamespace(pull_messages=lambda asked: [message(each) for each in asked])
    assert [each.question for each in Replies(grid, seconds=7).arrived(["a", "b"])] == ["a", "b"]
