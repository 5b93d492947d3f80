"""A PostgreSQL and an nginx of a test's own, real ones, ended with it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from solera.federation.operate.processes import free_port

CONFIG = Path(__file__).parents[2] / "packaging" / "nginx"
_POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:] or [Path("/usr/bin")]


class Postgres:
    """A server in a folder, which its own user can enter; the one of a test is closed to others."""

    def __init__(self, root: Path) -> None:
        self.root, self.port = root / "pg", free_port()
        self.url = f"postgresql://solera@127.0.0.1:{self.port}/postgres"
        if not (_POSTGRES[0] / "postgres").exists() or shutil.which("nginx") is None:
            pytest.skip("PostgreSQL or nginx is not installed")
        self.root.mkdir(mode=0o700)
        self.user: dict[str, Any] = (
            {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        )
        if self.user:
            entry = pwd.getpwnam("postgres")
            os.chown(self.root, entry.pw_uid, entry.pw_gid)
            for each in (root, root.parent):
                each.chmod(each.stat().st_mode | 0o001)
        made = subprocess.run(
            [_POSTGRES[0] / "initdb", "-D", self.root / "data", "-U", "solera", "-A", "trust"],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.root,
            **self.user,
        )
        assert made.returncode == 0, made.stderr
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -k {self.root} -c listen_addresses=127.0.0.1 -c max_connections=200"
        self.process = subprocess.Popen(
            [_POSTGRES[0] / "postgres", "-D", self.root / "data", *options.split()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self.user,
        )
        for _ in range(600):
            asked: list[Any] = [_POSTGRES[0] / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
            if subprocess.run(asked, check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise TimeoutError("PostgreSQL does not answer")

    def kill(self) -> None:
        """As a power cut would, but for the disk: all its processes at once."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait()
        psutil.wait_procs(family)

    def seconds(self) -> float:
        """Processor time of all its processes, also of those that have ended."""
        own = psutil.Process(self.process.pid)
        return float(sum(sum(each.cpu_times()[:4]) for each in [own, *own.children(recursive=True)]))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)  # with SIGTERM it waits for connections, of a failed test too
        self.process.wait()


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server until the block is left."""
    with tempfile.TemporaryDirectory(prefix="solera-pg-") as root:
        made = Postgres(Path(root))
        try:
            yield made
        finally:
            made.stop()


@contextmanager
def nginx(
    root: Path, port: int, keys: Path, folder: Path, socket: Path, *, limits: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """nginx as packaging/nginx has it, with the places of a test, and limits of an address if asked for."""
    root.mkdir()
    text = (CONFIG / "solera.conf").read_text()
    text = re.sub(r"listen \[::\].*\n", "", text)
    for given, here in (
        ("/run/solera/server.sock", socket),
        ("listen 8000 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/solera/keys", keys),
        ("/var/lib/solera/films", folder),
        ("rate=50r/s", "rate=50r/s" if limits else "rate=100000r/s"),  # a test's devices have one address
        ("burst=200", "burst=200" if limits else "burst=100000"),
        ("limit_conn solera_address 100;", f"limit_conn solera_address {100 if limits else 60_000};"),
    ):
        assert given in text
        text = text.replace(given, str(here))
    shutil.copy(CONFIG / "solera_proxy.conf", root)
    user = "user root;" if os.getuid() == 0 else ""
    (root / "nginx.conf").write_text(
        f"{user} daemon off; worker_processes 1; pid {root}/pid; error_log {root}/error.log;\n"
        f"events {{ worker_connections 8192; }}\nhttp {{ access_log off; client_body_temp_path {root}/body;"
        f" proxy_temp_path {root}/proxy;\n{text}\n}}\n"
    )
    command: list[Any] = ["nginx", "-p", root, "-c", root / "nginx.conf"]
    tested = subprocess.run([*command, "-t"], check=False, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
