"""A real server with TLS, and whoever can reach its port: signed requests, and bytes of any kind."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from solera.federation.common.address import Address, tag_of
from solera.federation.common.authority import make_keys
from solera.federation.common.packets import to_bytes
from solera.federation.common.protocol import Packet
from solera.federation.common.wire import CHECK_IN, PACKET, unpack_task
from solera.federation.node.line import read_key
from solera.federation.operate import server as serving
from solera.federation.operate.processes import free_port
from solera.federation.web.signing import device_number, signed_headers
from solera.federation.web.store import Message, Store
from solera.privacy.identity import public_identity

NODES = 12
ATTACKER, ELSEWHERE = "127.0.0.2", "127.0.0.3"  # of this machine, too
CUT_OFF = 0  # in place of a status
MB = 1_000_000
ANSWER_BODY = to_bytes(Packet({"said": "yes"}))


@dataclass
class Caller:
    """One device, or somebody who would like to be one."""

    address: Address
    key: Any
    line: httpx.Client
    tag: str
    session: str = "a" * 32
    ahead: float = 0.0  # of its clock, in seconds
    nonce: int = field(default_factory=lambda: int(time.time() * 1e6))

    @property
    def number(self) -> int:
        return device_number(public_identity(self.key))

    def headers(self, path: str, body: bytes, **other: Any) -> dict[str, str]:
        """A right signature, but for what is given otherwise."""
        self.nonce += 1
        said = {
            "tag": self.tag,
            "created": int(time.time() + self.ahead),
            "nonce": self.nonce,
            "method": "POST",
            **other,
        }
        return signed_headers(said.pop("key", self.key), said.pop("method"), path, body, **said)

    def ask(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        """One request."""
        made = self.headers(path, body) if headers is None else headers
        return self.line.post(path, content=body, headers=made)

    def body(self, **more: Any) -> bytes:
        """What a device says when it checks in."""
        return json.dumps({"session": self.session, "wait": 0, **more}).encode()

    def check_in(self, **more: Any) -> httpx.Response:
        return self.ask(CHECK_IN, self.body(**more))

    def task(self) -> str | None:
        """The name of its next task."""
        answer = self.check_in()
        assert answer.status_code == 200, answer.text
        return unpack_task(answer.content)[0]["task"] if answer.headers["content-type"] == PACKET else None


@dataclass
class Web:
    """A server, those it knows, and what the coordinator asks of its database."""

    folder: Path
    keys: Path
    address: Address
    server: serving.Server
    fence: int
    line: httpx.Client

    @property
    def store(self) -> Store:
        return self.server.store

    def caller(self, number: int, keys: Path | None = None) -> Caller:
        """A node by its number; of other keys, a stranger."""
        key = read_key((keys or self.keys) / "nodes" / f"node-{number}")
        return Caller(self.address, key, self.line, tag_of(self.address.ca))

    def send(self, caller: Caller, seconds: float = 60.0) -> str:
        """A task for a device; returns its name."""
        message = Message(caller.number, "train", "round-1", to_bytes(Packet({"secret": caller.number})), "")
        return self.store.send([message], fence=self.fence, seconds=seconds)[0]

    def collected(self) -> list[tuple[str, int]]:
        """What the coordinator gets: names of tasks, and whose they are."""
        return [(came.task, came.device) for came in self.store.collect(self.fence)]

    def serves(self) -> bool:
        return httpx.get(f"{self.address.url}/health", verify=trusting(self.address), timeout=10).is_success


@contextmanager
def web(root: Path) -> Iterator[Web]:
    """A server on SQLite, with TLS, of twelve nodes."""
    folder, keys = root / "films", root / "keys"
    make_keys(keys, NODES)
    address = Address("127.0.0.1", free_port(), keys / "ca.pem")
    with (
        serving.running(folder, address, keys) as running,
        httpx.Client(base_url=address.url, verify=trusting(address), timeout=60) as line,
    ):
        yield Web(folder, keys, address, running, running.store.take_over(), line)


def trusting(address: Address) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=address.ca)


def connect(address: Address, source: str = "127.0.0.1", timeout: float = 30) -> ssl.SSLSocket:
    """A TLS connection for bytes of any kind, from one of this machine's addresses."""
    line = socket.create_connection((address.host, address.port), timeout, (source, 0))
    return trusting(address).wrap_socket(line, server_hostname=address.host)


def head(path: str, method: str = "POST", **headers: Any) -> bytes:
    """The first lines of a request; `content_length` is the header Content-Length."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(line: socket.socket) -> int:
    """The status of the answer; CUT_OFF if there is none."""
    with suppress(OSError):
        found = re.match(rb"HTTP/1.1 (\d+)", line.recv(4096))
        if found:
            return int(found[1])
    return CUT_OFF


def push(address: Address, path: str, pieces: Iterable[bytes], **headers: Any) -> int:
    """Send and send, whatever the server says; returns the status of its answer."""
    with connect(address) as line:
        with suppress(OSError):
            line.sendall(head(path, **headers))
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


def peak(pid: int) -> float:
    """Megabytes of memory that a process has had at most."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024 / MB


def words_of(pid: int) -> list[str]:
    """A process' command line, which every user of the machine can read."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return []


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


def open_to_others(paths: list[Path]) -> list[str]:
    """Files and folders that are not for their user alone."""
    return [f"{path} {mode:o}" for path in paths if (mode := path.stat().st_mode) & 0o077]
