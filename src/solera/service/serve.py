"""Run the service of a device on 127.0.0.1, and open its page in a browser."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from solera.core.errors import DeviceError
from solera.core.files import PRIVATE
from solera.device.device import Device
from solera.device.folder import DATABASE
from solera.service.app import service
from solera.service.connections import Connection
from solera.service.guard import Place
from solera.service.tls import certificate_of, home_address

ADDRESS, EVERYWHERE = "127.0.0.1", "0.0.0.0"
_REDIRECT = """<!doctype html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}"><title>Solera</title><a href="{link}">Solera</a>
"""


def serve(
    folder: Path,
    user: str,
    port: int,
    *,
    browser: bool,
    on_ready: Callable[[str], None],
    network: bool = False,
    names: Sequence[str] = (),
) -> None:
    """Serve until interrupted. `on_ready` is given the link; port 0 is any free one.

    In the home's `network`, with TLS, under this machine's IP addresses and names, and those in `names`. The
    link has the first of these, which a container needs: it does not know the address of its machine.
    """
    Device.open(folder).close()  # says now if there is none
    try:
        listening = socket.create_server((EVERYWHERE if network else ADDRESS, port))
    except OSError as error:
        message = f"port {port} cannot be used: {error.strerror}"
        raise DeviceError(message, "give another --port, or none to use any that is free") from None
    bound = listening.getsockname()[1]
    address = home_address() if network else ADDRESS
    here = socket.gethostname().lower()
    given = [name.lower() for name in names]
    known = (*given, here, f"{here}.local", "localhost") if network else ()
    host = f"{given[0] if network and given else address}:{bound}"
    place, secret = Place(host, network, known), secrets.token_urlsafe(32)
    link = f"{place.scheme}://{host}/#token={secret}"
    certificate = certificate_of(folder, {*known, ADDRESS, address}) if network else None
    config = uvicorn.Config(
        service(folder, user, secret, place),
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
        ssl_certfile=certificate,
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
