"""Keys others must be able to read, and that nothing may overwrite."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from solera.core.errors import DeployError
from solera.federation.common.authority import check_server, hosts_of, make_keys, read_certificate


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_files_and_who_may_read_them(tmp_path):
    written = make_keys(tmp_path, 2)
    names = {"ca.pem", "ca.key", "server.pem", "server.key", "roster.pub", "roster.key"}
    names |= {"nodes/node-1", "nodes/node-1.pub", "nodes/node-2", "nodes/node-2.pub"}
    assert {str(path.relative_to(tmp_path)) for path in written} == set(contents(tmp_path)) == names
    for name in ("ca.key", "server.key", "roster.key", "nodes/node-1", "nodes/node-2"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_nothing_is_overwritten_and_nodes_can_be_added(tmp_path):
    make_keys(tmp_path, 2)
    before = contents(tmp_path)
    assert make_keys(tmp_path, 2) == []
    (tmp_path / "ca.key").unlink()  # kept elsewhere: nodes are added without it
    assert [path.name for path in make_keys(tmp_path, 3)] == ["node-3", "node-3.pub"]
    after = contents(tmp_path)
    assert {name: after[name] for name in before if name != "ca.key"} == {
        name: content for name, content in before.items() if name != "ca.key"
    }


def test_a_node_signs_with_p256_in_the_openssh_format(tmp_path):
    make_keys(tmp_path, 1)
    secret = load_ssh_private_key((tmp_path / "nodes/node-1").read_bytes(), None)
    public = load_ssh_public_key((tmp_path / "nodes/node-1.pub").read_bytes())
    assert isinstance(secret, ec.EllipticCurvePrivateKey)
    assert secret.curve.name == "secp256r1"
    assert secret.public_key() == public


def test_the_certificate_is_the_authoritys_and_for_the_hosts(tmp_path):
    make_keys(tmp_path, 0, ("films.example.org", "192.0.2.7"), days=30)
    certificate = read_certificate(tmp_path / "server.pem")
    assert hosts_of(certificate) == {"localhost", "127.0.0.1", "::1", "films.example.org", "192.0.2.7"}
    certificate.verify_directly_issued_by(read_certificate(tmp_path / "ca.pem"))
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=29, hours=23) < left <= timedelta(days=30)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")  # they belong together


def test_strict_checks_are_passed(tmp_path):
    """Python 3.13 asks for more than 3.11 did: the strict flag everywhere."""
    make_keys(tmp_path, 0)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    client = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname="127.0.0.1"),
        server.wrap_bio(there, back, server_side=True),
    ]
    done = 0
    for _ in range(10):
        done = 0
        for end in ends:
            try:
                end.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
        if done == 2:
            break
    assert done == 2


def test_another_host_needs_another_certificate(tmp_path):
    make_keys(tmp_path, 0)
    with pytest.raises(DeployError, match=r"not valid for films\.example\.org") as error:
        make_keys(tmp_path, 0, ("films.example.org",))
    assert "delete server.pem and server.key" in error.value.hint
    for name in ("server.pem", "server.key"):
        (tmp_path / name).unlink()
    make_keys(tmp_path, 0, ("films.example.org",))
    assert "films.example.org" in hosts_of(read_certificate(tmp_path / "server.pem"))


def test_an_expired_certificate_is_noticed_before_the_server_starts(tmp_path):
    make_keys(tmp_path, 0, days=30, now=datetime.now(UTC) - timedelta(days=31))
    with pytest.raises(DeployError, match=r"server\.pem expired on"):
        check_server(tmp_path)
    with pytest.raises(DeployError, match="is not a certificate"):
        check_server(tmp_path / "elsewhere")
