"""The certificate of a service in the home's network: made by the device itself, for ten years."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from solera.core.files import PRIVATE, replacing_file
from solera.device.folder import CERTIFICATE

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

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
