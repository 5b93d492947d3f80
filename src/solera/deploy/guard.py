"""Flower's SuperLink with its control interface for this machine alone: python -m solera.deploy.guard …

Flower serves nodes, operators and its own processes on one port, and asks only the nodes who they are:
whoever reaches the port could start a program of theirs on every node, or register a key. So from other
machines nothing but the nodes' own part is let through.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from flwr.superlink import extensions
from flwr.superlink.cli import flower_superlink
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

FOR_NODES = "/v1/fleet/"


class Guard:
    """Lets through what nodes need, and everything from this machine."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 in the SuperLink's place, or let it answer."""
        if scope["type"] == "lifespan" or is_allowed(scope):
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse("not from another machine", 403)(scope, receive, send)


def is_allowed(scope: Scope) -> bool:
    """A machine that calls itself by an address of its own appears at both ends."""
    if scope["path"].startswith(FOR_NODES) or scope["path"] == "/health":
        return True
    if not scope.get("client"):
        return False
    caller = scope["client"][0]
    return ip_address(caller).is_loopback or caller == scope["server"][0]


if __name__ == "__main__":
    extensions.get_middleware = lambda: (Middleware(Guard),)
    flower_superlink()
