"""The service as an ASGI app: the page, what the page asks for, and the interface for other programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from solera.core.errors import SoleraError
from solera.service.access import Access, Endpoint, failed
from solera.service.api import ApiRoutes
from solera.service.federation import FederationRoutes
from solera.service.guard import Guard, TooLargeError
from solera.service.imports import Imports
from solera.service.openapi import described
from solera.service.page_routes import PageRoutes
from solera.service.worker import Worker

_ASSETS = files("solera.device") / "page_assets"
_FILES = {  # by path: no other file of the disk can be asked for
    "/": ("service.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
}


def service(folder: Path, user: str, secret: str, host: str) -> ASGIApp:
    """The service of a device. `secret` is the token of the link, `host` the address with its port."""
    worker = Worker(folder)
    imports = Imports(worker)
    access, federation = Access(worker, secret, user), FederationRoutes(worker)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await federation.open()
        yield
        await federation.close()
        imports.close()
        worker.close()

    routes = [Route(path, _file(name, kind), methods=["GET"]) for path, (name, kind) in _FILES.items()]
    routes += [*PageRoutes(worker, imports).routes(access), *ApiRoutes(worker).routes(access)]
    routes += federation.routes(access)
    routes.append(Route("/api/openapi.json", _describe, methods=["GET"]))
    handlers = {SoleraError: failed, TooLargeError: failed}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, host)


def _file(name: str, kind: str) -> Endpoint:
    content = (_ASSETS / name).read_bytes()

    async def answer(_: Request) -> Response:
        return Response(content, headers={"Content-Type": kind})

    return answer


async def _describe(_: Request) -> Response:
    return JSONResponse(described())
