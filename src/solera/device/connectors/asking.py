"""Ask a server in the home: no proxy, no redirection, no address elsewhere, and no endless answer.

`Told` is what a media server tells of a person.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from solera.core.errors import DeviceError
from solera.device.bundle import ID_KINDS
from solera.device.importers.entry import Entry

_SECONDS = 10.0
_MOST = 1 << 28  # bytes of an answer
_PORTS = {"http": 80, "https": 443, "mpd": 6600}


def checked(url: str) -> tuple[SplitResult, str, int]:
    """The parts of an address, the IP address that is connected to, and the port. It must be in the home."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise DeviceError(f"{url!r} is not an address", "write http://192.168.1.2:8080") from None
    if not parts.hostname or parts.username:
        raise DeviceError(f"{url!r} is not an address", "write http://192.168.1.2:8080")
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise DeviceError(f"{parts.hostname} is not found: {error}", "check the address") from None
    address = ipaddress.ip_address(str(found).partition("%")[0])
    if not (address.is_private or address.is_loopback or address.is_link_local):
        raise DeviceError(
            f"{parts.hostname} is {address}, which is not in your home's network",
            "give the address of a server at home: nothing about you is sent elsewhere",
        )
    return parts, str(found), port


def ask(url: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
    """Send a request, and return the JSON of its answer; None if it is empty."""
    parts, address, port = checked(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", port, timeout=_SECONDS)
    try:
        if parts.scheme == "http":
            connection.sock = socket.create_connection((address, port), _SECONDS)  # the one that was checked
        content = None if body is None else json.dumps(body).encode()
        sent = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        connection.request("GET" if body is None else "POST", parts.path.rstrip("/") + path, content, sent)
        answer = connection.getresponse()
        text = answer.read(_MOST + 1)
    except (OSError, HTTPException) as error:
        raise DeviceError(f"{url} does not answer: {error}", "check that it runs, and its address") from None
    finally:
        connection.close()
    if answer.status in {401, 403}:
        raise DeviceError(f"{url} refuses the key", "make a new one on the server, and connect again")
    if not 200 <= answer.status < 300:
        raise DeviceError(f"{url}{path.partition('?')[0]} answers {answer.status}", "check the address")
    if len(text) > _MOST:
        raise DeviceError(f"{url} answers with more than {_MOST:,} bytes", "check the address")
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        raise DeviceError(f"{url} does not answer in JSON", "check the address") from None


class Told(NamedTuple):
    """Entries of a history, and the library: the server's own ids with entries.

    `write` shows recommendations on the server, by its own ids, where it can.
    """

    history: list[Entry]
    library: list[tuple[str, Entry]]
    write: Callable[[list[str]], None] | None = None


def ids_of(given: Mapping[str, Any] | None) -> dict[str, str]:
    """Ids elsewhere by their kinds, in whatever case a server writes these; TMDB first."""
    plain = {str(kind).lower(): str(id_) for kind, id_ in (given or {}).items() if id_}
    return {kind: plain[kind] for kind in ID_KINDS if kind in plain}
