"""The door of the service: who may ask, how much, and what a browser may do with the answer.

A page of another site can send requests to 127.0.0.1. Five things keep it out: the Host must be this
address (a name that an attacker points at 127.0.0.1 is not), the Origin must be this page's, a browser that
says Sec-Fetch-Site must say same-origin, every path with data needs a token in a header, which no other site
knows and no form can send, and no GET changes anything.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MOST_BYTES = 1 << 18  # of a body
_LARGER = {"/page/imports": 1 << 28, "/page/model": 1 << 29}  # of bodies that go to the disk at once
_LARGER["/page/invitation"] = 1 << 21  # a list of nodes may be in it
_DATA = ("/page/", "/api/")
_OURS = ("same-origin", "none")  # none: typed into the address bar


class RefusedError(Exception):
    """A request that is answered with a refusal."""

    def __init__(self, answer: JSONResponse) -> None:
        super().__init__()
        self.answer = answer


class TooLargeError(RefusedError):
    """A body has more bytes than its path takes."""

    def __init__(self, most: int) -> None:
        super().__init__(refused(413, f"the body has more than {most:,} bytes", "send less at once"))


class Place(NamedTuple):
    """Where a service is: at one address of this machine, or with TLS in the home's network.

    In the network any IP address is a right Host, because no name that an attacker points here is one, and
    so are the `names` that the owner gives to this machine.
    """

    host: str  # with the port
    network: bool = False
    names: tuple[str, ...] = ()

    def is_right(self, host: str) -> bool:
        """Whether a browser that asks for this host asks this service."""
        if not self.network or host == self.host:
            return host == self.host
        name, _, port = host.rpartition(":")
        if port != self.host.rpartition(":")[2]:
            return False
        try:
            return bool(ip_address(name.strip("[]")))
        except ValueError:
            return name.lower() in self.names

    @property
    def scheme(self) -> str:
        """Of its addresses."""
        return "https" if self.network else "http"


class Guard:
    """ASGI middleware in front of everything else."""

    def __init__(self, app: ASGIApp, place: Place) -> None:
        """Only a Host of the `place` is answered."""
        self._app, self._place = app, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that is allowed, and refuse any other before its body is read."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # uvicorn closes a connection that nobody accepts
        most = _LARGER.get(scope["path"], MOST_BYTES)
        refusal = self._refusal(scope["path"], Headers(scope=scope), most)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        if refusal is None:
            await self._app(scope, _counted(receive, most), answer)
        else:
            await refusal(scope, receive, answer)

    def _refusal(self, path: str, headers: Headers, most: int) -> JSONResponse | None:
        place, hosts, origins = self._place, headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not place.is_right(hosts[0]):
            hint = f"use {place.scheme}://{place.host}/" + (", or start it with --name" * place.network)
            return refused(421, "this service is not at that address", hint)
        if origins and origins != [f"{place.scheme}://{hosts[0]}"]:
            return refused(403, "another site asks", "open the link that solera device open shows")
        if path.startswith(_DATA) and any(each not in _OURS for each in headers.getlist("sec-fetch-site")):
            return refused(403, "another site asks", "open the link that solera device open shows")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > most:
            return TooLargeError(most).answer
        return None


def refused(status: int, error: str, hint: str) -> JSONResponse:
    """What is wrong and what to do next. The connection ends, because its body is not read."""
    return JSONResponse({"error": error, "next": hint}, status, {"Connection": "close"})


def _counted(receive: Receive, most: int) -> Receive:
    total = 0

    async def count() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > most:
            raise TooLargeError(most)
        return message

    return count
