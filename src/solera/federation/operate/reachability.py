"""Whether a server can be reached and is the right one: a problem is told before anything is started."""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path

from solera.core.errors import DeployError
from solera.federation.common.address import Address

_EXPIRED, _HOSTNAME, _IP_ADDRESS = 10, 62, 64  # X509_V_ERR_… of OpenSSL


class SilenceError(DeployError):
    """Nobody listens there, or not yet."""


def check(address: Address | Path) -> None:
    """Return if the server answers and, with `address.ca`, shows a certificate of that authority.

    A path is a Unix socket, where a server waits for nginx.
    """
    try:
        _ask(address)
    except ssl.SSLCertVerificationError as error:
        assert isinstance(address, Address)
        raise _wrong_certificate(address, error) from None
    except ssl.SSLError:
        raise DeployError(
            f"the server at {address} does not speak TLS",
            "start it with --keys; or, if nothing needs to be kept secret, give --insecure here too",
        ) from None
    except (http.client.HTTPException, ConnectionResetError):
        is_open = isinstance(address, Address) and address.ca is None
        hint = "give --ca and --key instead of --insecure" if is_open else "check host and port"
        raise DeployError(
            f"the server at {address} requires TLS"
            if is_open
            else f"the server at {address} is not a federation's server",
            hint,
        ) from None
    except OSError as error:
        raise SilenceError(
            f"no server answers at {address}: {error.strerror or error}",
            "solera server start FOLDER --keys DIR starts one; check host, port and firewall",
        ) from None


class _Line(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket in place of a port."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(str(self._path))


def _ask(address: Address | Path) -> None:
    line: http.client.HTTPConnection
    if isinstance(address, Path):
        line = _Line(address)
    elif address.ca is None:
        line = http.client.HTTPConnection(address.host, address.port, timeout=10)
    else:
        context = _trusting(address)
        line = http.client.HTTPSConnection(address.host, address.port, timeout=10, context=context)
    try:
        line.request("GET", "/health")
        if line.getresponse().status != http.client.OK:
            raise http.client.HTTPException
    finally:
        line.close()


def _trusting(address: Address) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=address.ca)
    except (OSError, ssl.SSLError):
        raise DeployError(
            f"{address.ca} is not an authority's certificate",
            "give --ca ca.pem, as `solera federation keys` made it on the server",
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
