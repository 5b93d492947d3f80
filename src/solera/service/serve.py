"""Run the service of a device on 127.0.0.1 or in the home's network, and open its page in a browser.

When there are too many connections, one that asks for nothing makes room for a new one. In the network the
service has a certificate that the device makes itself, for ten years.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import webbrowser
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from solera.core.errors import DeviceError
from solera.core.files import PRIVATE, replacing_file
from solera.device.device import Device
from solera.device.folder import CERTIFICATE, DATABASE
from solera.service.app import service
from solera.service.guard import Place

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

MOST = 64  # open at once; a browser opens 6


class Connection(H11Protocol):
    """A connection that another program may open and leave open, but never to keep the owner out."""

    _open: ClassVar[dict[Connection, None]] = {}  # the longest silent first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection. One too many ends another: one that waits for a request, if there is any."""
        super().connection_made(transport)
        self._open[self] = None
        if len(self._open) > MOST:
            ended = min(self._open, key=lambda each: each is self or each.is_busy)
            del self._open[ended]
            ended.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from those that are open."""
        self._open.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what comes."""
        if self in self._open:
            self._open[self] = self._open.pop(self)
        super().data_received(data)

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete


_YEARS = timedelta(days=3_650)


def home_address() -> str:
    """This machine's own address in the home's network. Nothing is sent to find it."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
        try:
            asking.connect(("192.0.2.1", 9))  # an address that nobody has: only the route is looked up
            return str(asking.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def certificate_of(folder: Path, names: Iterable[str]) -> Path:
    """The file with the device's certificate and key, made when there is none."""
    path = folder / CERTIFICATE
    if not path.exists():
        with replacing_file(path, PRIVATE) as partial:
            partial.write_bytes(_made(names))
    return path


def _made(names: Iterable[str]) -> bytes:
    from cryptography import x509  # noqa: PLC0415 - only here
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Solera device")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _YEARS)
        .add_extension(
            x509.SubjectAlternativeName([_general(each) for each in sorted(names)]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return made.public_bytes(pem) + key.private_bytes(pem, form, plain)


def _general(name: str) -> GeneralName:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


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
