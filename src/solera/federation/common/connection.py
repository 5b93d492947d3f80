"""A connection to a server over HTTP, and whether that server is the right one.

A node has one all the time, so it is made of Python's own library alone.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from solera.core.errors import DeployError
from solera.core.text import clean_text
from solera.federation.common.address import Address

FAILURES = (OSError, http.client.HTTPException)  # what a request raises that nobody has answered
_CONNECT, _ANSWER = 10.0, 60.0  # seconds
_LONGEST = 1 << 30  # bytes of an answer: a model of 2^27 numbers in double precision
_EXPIRED, _HOSTNAME, _IP_ADDRESS = 10, 62, 64  # X509_V_ERR_… of OpenSSL


class SilenceError(DeployError):
    """Nobody listens there, or not yet."""


class Answer(NamedTuple):
    """What a server has answered."""

    status: int
    kind: str  # of the content
    content: bytes

    @property
    def is_error(self) -> bool:
        """Whether it is a refusal."""
        return self.status >= http.client.BAD_REQUEST

    def json(self) -> Any:
        """The content, if it is JSON; otherwise a ValueError."""
        return json.loads(self.content)

    @property
    def refusal(self) -> tuple[str, str]:
        """What a refusal says, and what to do."""
        try:
            said = self.json()
            return clean_text(str(said["error"]))[:500], clean_text(str(said["next"]))[:500]
        except (ValueError, KeyError, TypeError):
            return f"the server answered {self.status}", "ask its operator"


class Connection:
    """Requests to one server, one at a time. The connection is kept, and made again after it broke.

    A path in place of an address is a Unix socket, where a server waits for nginx.
    """

    def __init__(self, server: Address | Path, timeout: float = _ANSWER) -> None:
        self.timeout = timeout
        self._line: http.client.HTTPConnection
        if isinstance(server, Path):
            self._line = _UnixConnection(server)
        elif server.ca is None:
            self._line = http.client.HTTPConnection(server.host, server.port)
        else:
            self._line = http.client.HTTPSConnection(server.host, server.port, context=trust(server))
        self._line.auto_open = 0

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request and its answer; one of FAILURES if there is none."""
        try:
            if self._line.sock is not None and _is_over(self._line.sock):
                self._line.close()
            if self._line.sock is None:
                self._line.timeout = min(_CONNECT, self.timeout)
                self._line.connect()
            self._line.sock.settimeout(self.timeout)
            self._line.request(method, path, body, headers or {})
            answer = self._line.getresponse()
            content = answer.read(_LONGEST + 1)
            if len(content) > _LONGEST:
                raise http.client.HTTPException(f"an answer of more than {_LONGEST:,} bytes")
            return Answer(answer.status, answer.headers.get("content-type", ""), content)
        except BaseException:  # also where a signal ends the node: what it says last needs another connection
            self._line.close()
            raise

    def close(self) -> None:
        """End it."""
        self._line.close()


def _is_over(line: socket.socket) -> bool:
    """Whether a server says something unasked: that it has ended the connection."""
    look = select.poll()
    look.register(line, select.POLLIN)
    return bool(look.poll(0))


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        """Connect to the socket in place of a port."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def trust(address: Address) -> ssl.SSLContext:
    """Whom a connection with TLS believes to be the server."""
    try:
        return ssl.create_default_context(cafile=address.ca)
    except (OSError, ssl.SSLError):
        raise DeployError(
            f"{address.ca} is not an authority's certificate",
            "give --ca ca.pem, as `solera federation keys` made it on the server",
        ) from None


def check(server: Address | Path) -> None:
    """Return if the server answers and, with `address.ca`, shows a certificate of that authority."""
    try:
        line = Connection(server, timeout=_CONNECT)
        try:
            if line.ask("GET", "/health").status != http.client.OK:
                raise http.client.HTTPException
        finally:
            line.close()
    except ssl.SSLCertVerificationError as error:
        assert isinstance(server, Address)
        raise _wrong_certificate(server, error) from None
    except ssl.SSLError:
        raise DeployError(
            f"the server at {server} does not speak TLS",
            "start it with --keys; or, if nothing needs to be kept secret, give --insecure here too",
        ) from None
    except (http.client.HTTPException, ConnectionResetError):
        is_open = isinstance(server, Address) and server.ca is None
        hint = "give --ca and --key instead of --insecure" if is_open else "check host and port"
        raise DeployError(
            f"the server at {server} requires TLS"
            if is_open
            else f"the server at {server} is not a federation's server",
            hint,
        ) from None
    except OSError as error:
        raise SilenceError(
            f"no server answers at {server}: {error.strerror or error}",
            "solera server start FOLDER --keys DIR starts one; check host, port and firewall",
        ) from None


def _wrong_certificate(address: Address, error: ssl.SSLCertVerificationError) -> DeployError:
    if error.verify_code == _EXPIRED:
        return DeployError(
            f"the certificate of the server at {address} has expired",
            "on the server: delete server.pem and server.key, solera federation keys DIR, and start it again",
        )
    if error.verify_code in {_HOSTNAME, _IP_ADDRESS}:
        return DeployError(
            f"the server's certificate is not valid for {address.host}",
            "use a host name in the certificate, or make a new one: solera federation keys DIR --host NAME",
        )
    return DeployError(
        f"the server at {address} has a certificate that was not issued by {address.ca}",
        "ask the operator for the right ca.pem; if yours is right, this is not the federation's server",
    )
