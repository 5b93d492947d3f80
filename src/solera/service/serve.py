"""Run the service of a device on 127.0.0.1, and open its page in a browser."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path

import uvicorn

from solera.core.errors import DeviceError
from solera.core.files import PRIVATE
from solera.device.device import Device
from solera.device.folder import DATABASE
from solera.service.app import service
from solera.service.connections import Connection

ADDRESS = "127.0.0.1"
_REDIRECT = """<!doctype html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}"><title>Solera</title><a href="{link}">Solera</a>
"""


def serve(folder: Path, user: str, port: int, *, browser: bool, on_ready: Callable[[str], None]) -> None:
    """Serve until interrupted. `on_ready` is given the link; port 0 is any free one."""
    Device.open(folder).close()  # says now if there is none
    try:
        listening = socket.create_server((ADDRESS, port))
    except OSError as error:
        message = f"port {port} cannot be used: {error.strerror}"
        raise DeviceError(message, "give another --port, or none to use any that is free") from None
    host = f"{ADDRESS}:{listening.getsockname()[1]}"
    secret = secrets.token_urlsafe(32)
    link = f"http://{host}/#token={secret}"
    config = uvicorn.Config(
        service(folder, user, secret, host),
        access_log=False,
        h11_max_incomplete_event_size=1 << 16,
        http=Connection,
        lifespan="on",
        limit_concurrency=100,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=5,
        ws="none",
    )
    opener = folder / f"{DATABASE}-open.html"
    on_ready(link)
    try:
        if browser:
            _open(opener, link)
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        opener.unlink(missing_ok=True)
        listening.close()


def _open(opener: Path, link: str) -> None:
    """Open the link by a private file: other users of the machine see the arguments of a browser."""
    opener.unlink(missing_ok=True)
    opener.touch(PRIVATE)
    opener.write_text(_REDIRECT.format(link=link), encoding="utf-8")
    webbrowser.open(opener.resolve().as_uri())
