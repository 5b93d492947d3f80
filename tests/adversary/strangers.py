"""Whoever can reach a server's port: requests over TLS, well formed or not, and what they cost the server."""

from __future__ import annotations

import base64
import re
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from commands import below
from solera.deploy.common.flower import Address

PUSH = "/v1/fleet/push-object"  # takes the largest bodies
LIST, REGISTER, ACQUIRE = "/v1/control/list-nodes", "/v1/control/register-node", "/v1/runtime/acquire-task"
CUT_OFF = 0  # in place of a status
ELSEWHERE = "203.0.113.9"
ATTACKER = "127.0.0.2"  # another address than the tests' own, on the same machine
MB = 1_000_000


def connect(address: Address, source: str = "127.0.0.1", timeout: float = 30) -> ssl.SSLSocket:
    """A TLS connection from one of this machine's addresses."""
    context = ssl.create_default_context(cafile=address.ca)
    line = socket.create_connection((address.host, address.port), timeout, (source, 0))
    return context.wrap_socket(line, server_hostname=address.host)


def head(path: str, method: str = "POST", **headers: Any) -> bytes:
    """The first lines of a request; `content_length` is the header Content-Length."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/protobuf"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(line: socket.socket) -> int:
    """The status of the answer; CUT_OFF if there is none."""
    with suppress(OSError):
        found = re.match(rb"HTTP/1.1 (\d+)", line.recv(4096))
        if found:
            return int(found[1])
    return CUT_OFF


def ask(address: Address, path: str, body: bytes = b"", **headers: Any) -> int:
    """One request, and the status of its answer."""
    with connect(address) as line:
        line.sendall(head(path, content_length=len(body), **headers) + body)
        return status_of(line)


def push(address: Address, pieces: Iterable[bytes], **headers: Any) -> int:
    """Send and send, whatever the server says; returns the status of its answer."""
    with connect(address) as line:
        with suppress(OSError):
            line.sendall(head(PUSH, **headers))
            for piece in pieces:
                line.sendall(piece)
        return status_of(line)


def zeros(total: int, *, chunked: bool = False) -> Iterator[bytes]:
    """A body, in pieces of a megabyte."""
    piece = bytes(MB)
    for _ in range(total // MB):
        yield b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
    if chunked:
        yield b"0\r\n\r\n"


def is_open(line: socket.socket) -> bool:
    """Whether the server has kept a connection, and said nothing."""
    line.settimeout(0.01)
    try:
        line.recv(1)
    except (TimeoutError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False
    return False


def _secret(key: Path) -> EllipticCurvePrivateKey:
    secret = load_ssh_private_key(key.read_bytes(), password=None)
    assert isinstance(secret, EllipticCurvePrivateKey)
    return secret


def public(key: Path) -> bytes:
    """A node's public key, as Flower has it."""
    return public_key_to_bytes(_secret(key).public_key())


def signed(key: Path) -> dict[str, str]:
    """The headers by which a node shows who it is."""
    stamp = now().isoformat()
    named = {"flwr_public_key": public(key), "flwr_signature": sign_message(_secret(key), stamp.encode())}
    return {"flwr_timestamp": stamp, **{n: base64.b64encode(v).decode() for n, v in named.items()}}


def command_of(pid: int) -> list[str]:
    """The words of a process' command line, which every user of the machine can read."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return []


def superlink_of(pid: int) -> int:
    """The SuperLink below a command that runs one."""
    (found,) = [each for each in below(pid) if "solera.deploy.edge.guard" in command_of(each)]
    return found


def peak(pid: int) -> float:
    """Megabytes of memory that a process has had at most."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024 / MB


def listening(pid: int) -> set[int]:
    """The ports that a process listens on."""
    sockets = {path.readlink().name for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    own = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]
    return {int(row[1].split(":")[1], 16) for row in own}
