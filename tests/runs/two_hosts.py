"""Two hosts on one machine: network namespaces, connected by a link that delays every packet.

Needs root and /dev/net/tun. The link is a TUN device in each namespace, and two threads that carry packets
from one to the other. It stands in for `tc netem`, which many kernels lack.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_MTU = 60_000


@dataclass(frozen=True)
class Host:
    """A network namespace with one address."""

    namespace: str
    device: str
    address: str

    def start(self, command: list[str], **how) -> subprocess.Popen:
        """Start a command on this host."""
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": self.device, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(["ip", "netns", "exec", self.namespace, *command], env=environment, **how)


def possible() -> bool:
    """Whether this machine lets us make namespaces and TUN devices."""
    return os.geteuid() == 0 and Path("/dev/net/tun").exists() and _works("ip", "netns", "list")


def _works(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def two_hosts(delay: float) -> Iterator[tuple[Host, Host]]:
    """Two hosts; every packet takes `delay` seconds from one to the other."""
    with ExitStack() as stack:
        ends = [stack.enter_context(_host(number)) for number in (1, 2)]
        (one, first), (other, second) = ends
        for source, target in ((first, second), (second, first)):
            waiting: Queue[tuple[float, bytes]] = Queue()
            threading.Thread(target=_receive, args=(source, waiting, delay), daemon=True).start()
            threading.Thread(target=_deliver, args=(target, waiting), daemon=True).start()
        yield one, other


@contextmanager
def _host(number: int) -> Iterator[tuple[Host, int]]:
    name = f"solera{os.getpid()}-{number}"
    host = Host(name, f"sol{os.getpid() % 100000}x{number}", f"10.213.77.{number}")
    _run("ip", "netns", "add", name)
    try:
        link = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(link, _TUNSETIFF, struct.pack("16sH", host.device.encode(), _IFF_TUN | _IFF_NO_PI))
        _run("ip", "link", "set", host.device, "netns", name)
        inside = ("ip", "-n", name)
        _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "address", "add", f"{host.address}/24", "dev", host.device)
        _run(*inside, "link", "set", host.device, "mtu", str(_MTU), "up")
        yield host, link
    finally:
        _run("ip", "netns", "delete", name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _receive(link: int, waiting: Queue[tuple[float, bytes]], delay: float) -> None:
    while True:
        try:
            packet = os.read(link, _MTU + 100)
        except OSError:
            return
        waiting.put((time.monotonic() + delay, packet))


def _deliver(link: int, waiting: Queue[tuple[float, bytes]]) -> None:
    while True:
        due, packet = waiting.get()
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            os.write(link, packet)
        except OSError:
            return
