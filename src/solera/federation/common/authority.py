"""A federation's keys: its own authority, the server's certificate and one key per node.

    DIR/ca.pem, ca.key          the authority; nodes need ca.pem, making certificates needs ca.key
    DIR/server.pem, server.key  what the server shows to nodes
    DIR/roster.pub, roster.key  what the list of nodes is signed with, for masked rounds
    DIR/nodes/NAME.pub          the public keys that devices have shown: see invitation.py
    DIR/nodes/NAME              secret keys of nodes, in trials on one machine alone

Nothing is ever overwritten: what is missing is made, what is there is kept.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from solera.core.errors import DeployError
from solera.privacy.identity import new_identity

ROSTER_KEY, ROSTER_PUBLIC = "roster.key", "roster.pub"
LOCAL = ("localhost", "127.0.0.1", "::1")  # in every server certificate: the server talks to itself
CA_DAYS = 3650


def make_keys(
    folder: Path, nodes: int, hosts: tuple[str, ...] = (), days: int = 365, now: datetime | None = None
) -> list[Path]:
    """Make what is missing of an authority, a server certificate and the keys node-1 … node-`nodes`.

    `hosts` are the names and addresses nodes will call the server by, beside those of this machine.
    Returns the files that were written.
    """
    now = now or datetime.now(UTC)
    try:
        (folder / "nodes").mkdir(parents=True, exist_ok=True)
        written = _authority(folder, now) + _server(folder, (*LOCAL, *hosts), days, now) + _roster(folder)
        for number in range(1, nodes + 1):
            written += make_node_key(folder / "nodes" / f"node-{number}", f"node-{number}")
    except OSError as error:
        raise DeployError(f"{folder} cannot be written: {error.strerror}", "give another folder") from None
    return written


def hosts_of(certificate: x509.Certificate) -> set[str]:
    """Host names and addresses for which a certificate is valid."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def read_certificate(path: Path) -> x509.Certificate:
    """A PEM file with a certificate."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        raise DeployError(
            f"{path} is not a certificate",
            "`solera federation keys DIR --nodes 3` makes certificate and keys",
        ) from None


def check_server(folder: Path) -> None:
    """Raise an error if the server's certificate is missing or has expired."""
    certificate = read_certificate(folder / "server.pem")
    read_certificate(folder / "ca.pem")
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise DeployError(
            f"{folder / 'server.pem'} expired on {certificate.not_valid_after_utc:%Y-%m-%d}",
            f"delete server.pem and server.key, then: solera federation keys {folder}",
        )


def _authority(folder: Path, now: datetime) -> list[Path]:
    secret, public = folder / "ca.key", folder / "ca.pem"
    if public.exists():
        return []
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Solera federation authority")])
    builder = (
        _certificate(name, key.public_key(), now, CA_DAYS)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    _write_new(secret, _pem(key), 0o600)
    _write_new(public, builder.sign(key, hashes.SHA384()).public_bytes(Encoding.PEM))
    return [public, secret]


def _server(folder: Path, hosts: tuple[str, ...], days: int, now: datetime) -> list[Path]:
    secret, public = folder / "server.key", folder / "server.pem"
    if public.exists():
        wanted = {str(_host(each).value) for each in hosts}
        missing = sorted(wanted - hosts_of(read_certificate(public)))
        if missing:
            raise DeployError(
                f"{public} already exists and is not valid for {', '.join(missing)}",
                "delete server.pem and server.key, then run this again; nodes keep their keys",
            )
        return []
    authority = read_certificate(folder / "ca.pem")
    key = new_identity()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Solera federation server")])
    signer = read_key(folder / "ca.key")
    builder = (
        _certificate(name, key.public_key(), now, days)
        .issuer_name(authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    _write_new(secret, _pem(key), 0o600)
    _write_new(public, builder.sign(signer, hashes.SHA384()).public_bytes(Encoding.PEM))
    return [public, secret]


def _roster(folder: Path) -> list[Path]:
    secret, public = folder / ROSTER_KEY, folder / ROSTER_PUBLIC
    if secret.exists() or public.exists():
        return []
    key = ec.generate_private_key(ec.SECP384R1())
    _write_new(secret, _pem(key), 0o600)
    _write_new(public, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return [public, secret]


def make_node_key(secret: Path, name: str) -> list[Path]:
    """Make the key of one node, if it is not there: a file with the secret, and one beside it, .pub."""
    public = secret.with_name(f"{secret.name}.pub")
    if secret.exists() or public.exists():
        return []
    key = new_identity()
    _write_new(secret, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), 0o600)
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write_new(public, line + f" {name}\n".encode())
    return [secret, public]


def _certificate(
    name: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The secret key of the authority."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DeployError(
            f"{path} is not the authority's secret key",
            "restore it from a copy; otherwise make a new folder of keys",
        )
    return key


def read_public_key(
    path: Path, hint: str = "give a .pub file of `solera federation keys`"
) -> ec.EllipticCurvePublicKey:
    """The public key of a node."""
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise DeployError(f"{path} is not a node's public key", hint)
    return key


def _write_new(path: Path, content: bytes, mode: int = 0o644) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
