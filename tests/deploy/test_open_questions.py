"""Questions of nodes that wait at the guard until there is a message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PushAppMessagesRequest, PushAppMessagesResponse

from solera.deploy.common.flower import WAIT_HEADER
from solera.deploy.common.frames import TAKE
from solera.deploy.edge.waiting import Arrivals, Noticing, Waiting

PUSH, PART = "/v1/runtime/push-messages", "/v1/runtime/push-object"


class Flower:
    """Has a message for a node once the server's app has pushed it; its parts come after it."""

    def __init__(self) -> None:
        self.asked = 0
        self.has: set[int] = set()
        self.status = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        answer: Any = b""
        if scope["path"] == TAKE:
            self.asked += 1
            node = PullMessagesRequest.FromString(body).node.node_id
            answer = PullMessagesResponse()
            if node in self.has:
                self.has.remove(node)
                answer.messages_list.add().metadata.run_id = 5
            answer = answer.SerializeToString()
        elif scope["path"] == PUSH:
            request = PushAppMessagesRequest.FromString(body)
            self.has |= {each.metadata.dst_node_id for each in request.messages_list}
            parts = [tree.object_id for tree in request.message_object_trees]
            answer = PushAppMessagesResponse(objects_to_push=parts).SerializeToString()
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": answer})


class Edge:
    def __init__(self) -> None:
        self.flower, arrivals = Flower(), Arrivals()
        self.nodes, self.own = Waiting(self.flower, arrivals), Noticing(self.flower, arrivals)

    async def call(self, app: Any, path: str, body: bytes, wait: str = "") -> list[Any]:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(WAIT_HEADER.encode(), wait.encode())] if wait else []
        await app({"type": "http", "path": path, "headers": headers}, receive, send)
        return sent

    async def ask(self, node: int, wait: str = "5") -> int:
        """How many messages the node got."""
        body = PullMessagesRequest(node=Node(node_id=node)).SerializeToString()
        answer = await self.call(self.nodes, TAKE, body, wait)
        return len(PullMessagesResponse.FromString(answer[1]["body"]).messages_list)

    async def push(self, *nodes: int) -> None:
        request = PushAppMessagesRequest()
        for node in nodes:
            request.messages_list.add().metadata.dst_node_id = node
            request.message_object_trees.append(ObjectTree(object_id=f"part-{node}"))
        await self.call(self.own, PUSH, request.SerializeToString())

    async def part(self, node: int) -> None:
        await self.call(self.own, PART, PushObjectRequest(object_id=f"part-{node}").SerializeToString())


def test_a_question_waits_for_a_whole_message():
    async def go() -> None:
        edge = Edge()
        questions = {node: asyncio.create_task(edge.ask(node)) for node in (1, 2)}
        await asyncio.sleep(0.02)
        await edge.push(1)
        await asyncio.sleep(0.02)
        assert not questions[1].done()  # its part is missing
        await edge.part(1)
        assert await asyncio.wait_for(questions[1], 1) == 1
        assert not questions[2].done()
        assert edge.flower.asked == 3  # once each, and once again for the message
        await edge.push(2)
        await edge.part(2)
        assert await asyncio.wait_for(questions[2], 1) == 1

    asyncio.run(go())


@pytest.mark.parametrize(("wait", "least"), [("", 0.0), ("x", 0.0), ("-1", 0.0), ("0.1", 0.1)])
def test_how_long_a_question_waits(wait: str, least: float):
    async def go() -> float:
        clock = asyncio.get_running_loop().time
        began = clock()
        assert await Edge().ask(1, wait) == 0
        return clock() - began

    assert least <= asyncio.run(go()) < least + 0.09


def test_who_is_refused_does_not_wait():
    async def go() -> None:
        edge = Edge()
        edge.flower.status = 401
        body = PullMessagesRequest(node=Node(node_id=1)).SerializeToString()
        answer = await asyncio.wait_for(edge.call(edge.nodes, TAKE, body, "5"), 1)
        assert answer[0]["status"] == 401

    asyncio.run(go())


def test_a_second_question_of_a_node_ends_the_first():
    async def go() -> None:
        edge = Edge()
        first = asyncio.create_task(edge.ask(1))
        await asyncio.sleep(0.02)
        second = asyncio.create_task(edge.ask(1))
        assert await asyncio.wait_for(first, 1) == 0
        await edge.push(1)
        await edge.part(1)
        assert await asyncio.wait_for(second, 1) == 1

    asyncio.run(go())
