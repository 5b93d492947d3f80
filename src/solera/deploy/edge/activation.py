"""Tell a node why it was not accepted.

Flower answers a key that it does not know and a key that is in use with the same words, though each asks for
another next step. A node whose machine was switched off counts as connected for a minute.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders

from solera.deploy.common.flower import CONNECTED
from solera.deploy.edge.signatures import IsKnown, key_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATH, _REFUSED = "/v1/fleet/activate-node", 412


class Activation:
    """An app that says which of the two it is. Whoever reads it has signed with the key."""

    def __init__(self, app: ASGIApp, is_known: IsKnown) -> None:
        self._app, self._is_known = app, is_known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Complete Flower's answer."""
        if scope["path"] != _PATH:
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def complete(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and message["status"] == _REFUSED:
                start = message
                return
            if start is not None and await run_in_threadpool(self._is_known, key_of(scope)):
                message = {**message, "body": _with_reason(message["body"])}
                MutableHeaders(scope=start)["content-length"] = str(len(message["body"]))
            if start is not None:
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, complete)


def _with_reason(body: bytes) -> bytes:
    return json.dumps(json.loads(body) | {"extra": CONNECTED}).encode()
