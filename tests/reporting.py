"""Helper and server of threshold reports as processes, each with a store of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from solera.federation.operate.processes import free_port
from solera.federation.reports.service import Plan
from solera.federation.reports.start import helper_key, server_database, server_key
from solera.privacy.reports.measurements import Measurement
from solera.privacy.reports.server import Server

NEWEST = 6  # items that a new one makes pairs with


def line_of(key: EllipticCurvePrivateKey) -> bytes:
    """The public key of a device, as its owner gives it to the helper's operator."""
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


class Services:
    """Helper and server, and who may talk to them."""

    def __init__(self, folder: Path, plan: Plan, database: str | None = None) -> None:
        self.folder, self.plan, self.database = folder, plan, database
        self.ports = {"helper": free_port(), "server": free_port()}
        self.keys = folder / "devices"
        self.keys.mkdir()
        helper_key(folder / "helper")
        self.public = server_key(folder / "server").public_key().public_bytes_raw()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.seconds: dict[str, float] = dict.fromkeys(self.ports, 0.0)  # of processors, once started
        self.kills: Counter[str] = Counter()
        for name in self.ports:
            self.start(name)

    def url(self, name: str) -> str:
        """Where a service is."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def start(self, name: str) -> None:
        """Start a service, and wait until it answers."""
        own: dict[str, list[Any]] = {
            "helper": ["start", self.folder / "helper", "--server", self.url("server")],
            "server": ["serve", self.folder / "server", "--helper", self.folder / "helper"],
        }
        given = self.plan.model_dump().items()
        options = [word for field, value in given for word in (f"--{field.replace('_', '-')}", value)]
        if name == "helper":
            options += ["--server-key", self.public.hex(), "--devices", self.keys]
        elif self.database:
            options += ["--database", self.database]
        command = [sys.executable, "-m", "solera", "helper", *own[name], *options, "--port", self.ports[name]]
        self.running[name] = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        for _ in range(1200):
            try:
                httpx.get(f"{self.url(name)}/health")
                self.seconds[name] -= self._used(name)
                return
            except httpx.TransportError:
                time.sleep(0.05)
        raise TimeoutError(f"the {name} does not answer")

    def kill(self, name: str) -> None:
        """End it as a power cut would, and start it again."""
        self.seconds[name] += self._used(name)
        self.kills[name] += 1
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()
        self.start(name)

    def _used(self, name: str) -> float:
        used = psutil.Process(self.running[name].pid).cpu_times()
        return float(used.user + used.system)

    def end(self) -> None:
        """End both."""
        for name, process in self.running.items():
            self.seconds[name] += self._used(name)
            process.kill()
            process.wait()

    def admit(self, name: str, line: bytes) -> None:
        """Let the helper know a device's key."""
        (self.keys / f"{name}.pub").write_bytes(line)

    def opened(self, epoch: int) -> tuple[int, dict[Measurement, int]]:
        """Reports and opened counts of an epoch, once the server has opened it."""
        asked = "SELECT reports FROM opened WHERE federation = ? AND epoch = ?"
        with closing(server_database(self.folder / "server", self.database)) as database:
            server = Server(database, server_key(self.folder / "server"))
            for _ in range(int(5 * (60 + 3 * self.plan.every))):  # looks: no time passes for who is suspended
                found = database.execute(asked, (self.plan.federation, epoch)).fetchall()
                if found:
                    return int(found[0][0]), server.counts(self.plan.federation, epoch)
                time.sleep(0.2)
        ended = {name: process.poll() for name, process in self.running.items()}
        raise TimeoutError(f"epoch {epoch} was not opened; exit codes of the services: {ended}")

    def next_epoch(self) -> int:
        """Wait for the beginning of the next epoch."""
        epoch = self.plan.epoch(time.time()) + 1
        while self.plan.epoch(time.time()) < epoch:
            time.sleep(0.05)
        return epoch
