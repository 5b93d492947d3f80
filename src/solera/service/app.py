"""The service as an ASGI app: the page, what the page asks for, and the interface for other programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from solera.core.errors import SoleraError
from solera.service.access import Access, Endpoint, failed
from solera.service.federation import FederationRoutes
from solera.service.guard import Guard, Place, RefusedError
from solera.service.imports import Imports
from solera.service.page_routes import PageRoutes
from solera.service.worker import Worker, refresh

_ASSETS = files("solera.device") / "page_assets"
_FILES = {  # by path: no other file of the disk can be asked for
    "/": ("service.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
}


def service(folder: Path, user: str, secret: str, place: Place) -> ASGIApp:
    """The service of a device at a place. `secret` is the token of the link."""
    worker = Worker(folder)
    imports = Imports(worker)
    access, federation = Access(worker, secret, user), FederationRoutes(worker)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await federation.open()
        refreshing = asyncio.create_task(refresh(folder))
        yield
        refreshing.cancel()
        with suppress(asyncio.CancelledError):
            await refreshing
        await federation.close()
        imports.close()
        worker.close()

    routes = [Route(path, _file(name, kind), methods=["GET"]) for path, (name, kind) in _FILES.items()]
    routes += [*PageRoutes(worker, imports).routes(access), *federation.routes(access)]
    handlers = {SoleraError: failed, RefusedError: failed}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(_with_rest(app, worker, access), place)


def _file(name: str, kind: str) -> Endpoint:
    content = (_ASSETS / name).read_bytes()

    async def answer(_: Request) -> Response:
        return Response(content, headers={"Content-Type": kind})

    return answer


def _with_rest(app: ASGIApp, worker: Worker, access: Access) -> ASGIApp:
    """The app, and the REST interface from the first request to it: the page does not wait for FastAPI."""
    interface: ASGIApp | None = None

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal interface
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await app(scope, receive, send)
            return
        if scope["path"] != "/api/openapi.json" and await access.caller(Request(scope)) is None:
            await app(
                {**scope, "path": "/page/about", "method": "GET"}, receive, send
            )  # refused, body unread
            return
        if interface is None:
            from solera.service.api import rest  # noqa: PLC0415 - takes half a second

            interface = rest(worker, access)
        headers = [each for each in scope["headers"] if each[0] != b"content-type"]
        headers.append((b"content-type", b"application/json"))  # every body is, whatever a program says
        await interface({**scope, "headers": headers}, receive, send)

    return answer
