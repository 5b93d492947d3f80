"""Replies that are not whole hold up nobody. Flower is played here; test_bad_network.py has the real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr", reason="needs the deploy extra")

from flwr.app import ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError
from flwr.superlink.grid.http_grid import HttpGrid

from solera.deploy.common.frames import RECEIVE, pack
from solera.deploy.server import replies
from solera.deploy.server.post import Post
from solera.deploy.server.replies import Reply


def reply(question: str) -> Message:
    content = RecordDict({"answer": ConfigRecord({"to": question})})
    about = Metadata(
        run_id=1,
        message_id="",
        src_node_id=2,
        dst_node_id=1,
        reply_to_message_id=question,
        group_id="",
        created_at=0.0,
        ttl=60.0,
        message_type="train",
    )
    message = make_message(about, content)
    message.metadata.__dict__["_message_id"] = message.object_id
    return message


class PlayedGrid(HttpGrid):
    """Announces each reply once, as Flower does."""

    def __init__(self, announced: list[str]) -> None:
        self.messages = {question: reply(question) for question in announced}
        self.parts: dict[str, bytes] = {}
        self.confirmed: list[str] = []
        self.node = SimpleNamespace(node_id=1)  # type: ignore[assignment]

    @property
    def _runtime_client(self) -> Any:
        def pull(request: Any) -> Any:
            found = PullAppMessagesResponse()
            for question in request.message_ids:
                if message := self.messages.pop(question, None):
                    announced = found.messages_list.add()
                    announced.metadata.reply_to_message_id = question
                    announced.metadata.message_id = message.object_id
                    found.message_object_trees.append(get_object_tree(message))
                    self.parts |= {
                        name: part.deflate() for name, part in get_all_nested_objects(message).items()
                    }
            return found

        def confirm(request: Any) -> None:
            self.confirmed.append(request.message_object_id)

        return SimpleNamespace(PullMessages=pull, PullObject=None, ConfirmMessageReceived=confirm)


@pytest.fixture
def late() -> threading.Event:
    return threading.Event()


@pytest.fixture
def post(monkeypatch, late) -> Iterator[tuple[Post, PlayedGrid]]:
    """Replies whose parts come at once, but for some."""
    asked = ["late", "never", "broken", "unreadable", "b"]
    grid = PlayedGrid([*asked])
    of = {message.object_id: question for question, message in grid.messages.items()}

    def pulled(names: list[str], pull: Any, **limits: float) -> dict[str, bytes]:
        assert limits["max_time"] == 7
        question = next(of[name] for name in names if name in of)
        if question == "late":
            late.wait(10)
        if question == "never":
            raise ObjectPullError("an array", "timeout")
        if question == "broken":
            raise OSError("the line is down")
        if question == "unreadable":
            return dict.fromkeys(names, b"nonsense")
        return {name: grid.parts[name] for name in names}

    monkeypatch.setattr(replies, "pull_objects", pulled)
    monkeypatch.setattr(replies, "make_pull_object_fn_protobuf", lambda *_: None)
    made = Post(grid, seconds=7)
    made._express = False
    monkeypatch.setattr(replies, "ConfirmMessageReceivedRequest", SimpleNamespace)
    yield made, grid
    late.set()


def gathered(post: Post, asked: list[str], count: int) -> dict[str, Reply]:
    found: dict[str, Reply] = {}
    end = time.monotonic() + 5
    while len(found) < count and time.monotonic() < end:
        left = [each for each in asked if each not in found]
        found |= {each.question: each for each in post.pull(left)}
        time.sleep(0.01)
    return found


def test_an_unfinished_upload_holds_up_nobody(post, late):
    made, grid = post
    asked = ["late", "never", "broken", "unreadable", "b", "not answered"]
    found = gathered(made, asked, 4)
    assert set(found) == {"never", "broken", "unreadable", "b"}
    assert [question for question, each in found.items() if each.message] == ["b"]
    assert "was not finished" in found["never"].error
    assert found["broken"].error == "the reply could not be fetched: the line is down"
    assert "cannot be read" in found["unreadable"].error
    late.set()
    (last,) = gathered(made, ["late", "not answered"], 1).values()
    assert last.message is not None
    assert last.message.content["answer"]["to"] == "late"
    assert len(grid.confirmed) == 3, "those that came whole"
    assert made.pull(["not answered"]) == []


def test_in_a_simulation_flower_does_all():
    grid: Any = SimpleNamespace(pull_messages=lambda asked: [reply(each) for each in asked])
    assert [each.question for each in Post(grid, seconds=7).pull(["a", "b"])] == ["a", "b"]


@pytest.mark.parametrize(("status", "asked"), [(503, 3), (500, 1)])
def test_a_busy_server_is_asked_again(monkeypatch, status, asked):
    refused = httpx.Response(status, request=httpx.Request("POST", "http://h"))
    errors = [httpx.HTTPStatusError("no", request=refused.request, response=refused)] * 2
    paths = []

    def exchange(client: Any, path: str, body: bytes) -> bytes:
        paths.append(path)
        if errors:
            raise errors.pop()
        return pack(PullAppMessagesResponse(), {})

    monkeypatch.setattr("solera.deploy.server.post.exchange", exchange)
    monkeypatch.setattr("solera.deploy.common.retries.time.sleep", lambda seconds: None)
    made = Post(PlayedGrid([]), seconds=7)
    with nullcontext() if status == 503 else pytest.raises(httpx.HTTPStatusError):
        assert made.pull(["a"]) == []
    assert paths == [RECEIVE] * asked
