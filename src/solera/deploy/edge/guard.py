"""Flower's SuperLink behind a guard: python -m solera.deploy.edge.guard, with flower-superlink's arguments.

Flower serves nodes, operators and its own programs on one port, and asks only the nodes who they are. The
guard decides who reaches what:

    /v1/fleet/…, /health   everybody: Flower asks nodes for a signature
    /v1/runtime/…          this machine: Flower asks its own programs for a secret, see executor.py
    all the rest           this machine, with the token in control.token

The guard is the app that is served, and Flower's app is inside of it. A Flower that is built in another way
than the versions tried does not start at all.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import sys
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from flwr.supercore import sql_mixin
from flwr.supercore.http_logging import get_uvicorn_log_config
from starlette.responses import PlainTextResponse

from solera.deploy.common.flower import NODES_PER_ADDRESS, Address
from solera.deploy.edge import connections
from solera.deploy.edge.activation import Activation
from solera.deploy.edge.admission import Admission
from solera.deploy.edge.executor import beside
from solera.deploy.edge.express import Express, OfApp, OfNodes
from solera.deploy.edge.limits import NODES, Bounds, Limits
from solera.deploy.edge.mailbox import Mailbox
from solera.deploy.edge.signatures import IsKnown, is_signed
from solera.deploy.edge.sparse_log import Sparse
from solera.deploy.edge.waiting import Arrivals, Noticing, Waiting

if TYPE_CHECKING:
    from flwr.superlink.config_loader import SuperLinkLifespanConfig
    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

_FOR_NODES = re.compile(r"/v1/fleet/[a-z-]+|/health")
_FOR_PROGRAMS = re.compile(r"/v1/runtime/[a-z-]+")
_LOCKED = (
    20_000  # ms that a request waits for the database; after Flower's 5 s a busy machine refuses requests
)
_UNLIMITED = 1e9  # requests per second: programs of this machine have other ways to keep it busy


class Guard:
    """An app of which everybody reaches the part that is for them."""

    def __init__(
        self,
        app: Starlette,
        token: bytes,
        is_known: IsKnown,
        bounds: Bounds | None = None,
        keys: Path | None = None,
    ) -> None:
        """With a folder of `keys`, invited devices may add their own."""
        self._app, self._token = app, token
        arrivals, mailbox = Arrivals(), Mailbox()
        trusted = partial(is_signed, is_known=is_known)
        express = Express(Activation(app, is_known), app, OfNodes(mailbox, arrivals).work)
        limited = Limits(Admission(express, keys) if keys else express, bounds or Bounds(), trusted)
        self._nodes = Waiting(limited, arrivals)  # a question that waits is under no limit but of connections
        own = Express(Noticing(app, arrivals), app, OfApp(mailbox, arrivals).work)
        self._operator = Limits(own, Bounds(rate=_UNLIMITED), lambda scope: True)  # apart from strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in the SuperLink's place, or let it answer."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif _FOR_NODES.fullmatch(scope["path"]):
            await self._nodes(scope, receive, send)
        elif not _is_local(scope):
            await _refuse(403, "not from another machine")(scope, receive, send)
        elif _FOR_PROGRAMS.fullmatch(scope["path"]) or self._has_token(scope):
            await self._operator(scope, receive, send)
        else:
            await _refuse(401, "not without the token of control.token")(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], b"Bearer " + self._token)


def _refuse(status: int, message: str) -> PlainTextResponse:
    return PlainTextResponse(message, status, {"connection": "close"})


def _is_local(scope: Scope) -> bool:
    """Whether the caller is on this machine, which may call itself by an address of its own."""
    client, server = scope.get("client"), scope.get("server")
    try:
        if client and ip_address(client[0]).is_loopback:
            return True
    except ValueError:
        return False
    is_forwarded = any(name == b"x-forwarded-for" for name, _ in scope["headers"])
    return bool(client and server and client[0] == server[0] and not is_forwarded)


def serve() -> None:
    """Serve until asked to end."""
    try:
        app, flower = _flowers_app()
        is_known = _lookup(app)
    except (ImportError, AttributeError, TypeError, KeyError) as error:
        sys.exit(f"this version of Flower cannot be guarded, so it is not started: {error}")
    token = flower.superexec_auth_secret
    if not token:
        sys.exit("no token: give --isolation process --superexec-auth-secret-file FILE")
    for name in ("flwr", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(name).addFilter(Sparse())
    nodes = int(os.environ.get(NODES_PER_ADDRESS, NODES))
    connections.make_room(nodes)
    with beside(str(Address(flower.host, flower.port).from_here()), flower.ssl_ca_certfile, token):
        listen(
            Guard(app, token, is_known, Bounds.for_nodes(nodes), _keys(flower)),
            host=flower.host,
            port=flower.port,
            ssl_keyfile=flower.ssl_keyfile,
            ssl_certfile=flower.ssl_certfile,
            log_config=get_uvicorn_log_config(logging.INFO),
        )


def listen(guard: Guard, **options: Any) -> None:
    """Serve a guard, and nothing that is not behind it."""
    uvicorn.run(guard, **connections.OPTIONS, **options)


def _flowers_app() -> tuple[Starlette, SuperLinkLifespanConfig]:
    """What `flower-superlink` serves with these arguments."""
    from flwr.superlink.cli.flower_superlink import (  # noqa: PLC0415 - an error that the caller explains
        SuperLinkLifespan,
        _parse_superlink_lifespan_config,
    )
    from flwr.superlink.main import create_app  # noqa: PLC0415

    wait_for_database()
    config = _parse_superlink_lifespan_config()
    return create_app(config, SuperLinkLifespan), config


def wait_for_database() -> None:
    """Let Flower's connections to its database, from now on, wait longer while it is locked."""
    pragmas = dict(vars(sql_mixin)["SQLITE_PRAGMAS"]) | {"busy_timeout": str(_LOCKED)}
    vars(sql_mixin)["SQLITE_PRAGMAS"] = tuple(pragmas.items())


def _keys(flower: SuperLinkLifespanConfig) -> Path | None:
    """The folder that the server's certificate is in."""
    return Path(flower.ssl_certfile).parent if flower.ssl_certfile else None


def _lookup(app: Starlette) -> IsKnown:
    """Tells whether a node's key is registered."""
    states = app.state.linkstate_factory

    def is_known(key: bytes) -> bool:
        return states.state().get_node_id_by_public_key(key) is not None

    is_known(b"")  # an error now, and not at the first node, if Flower has no such thing any more
    return is_known


if __name__ == "__main__":
    serve()
