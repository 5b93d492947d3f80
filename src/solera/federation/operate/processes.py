"""Programs that run beside this one, ended together with all they have started themselves."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import psutil

from solera.core.errors import ConfigError, DeployError
from solera.federation.common.private_files import OTHERS

# On Linux, a program that our main thread starts is asked to end when we are gone, however that came. (Of any
# other thread, the end of that thread would count.)
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
P = ParamSpec("P")
T = TypeVar("T")


def _can_follow() -> bool:
    return _LIBC is not None and threading.current_thread() is threading.main_thread()


def _follow() -> None:
    assert _LIBC
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Process:
    """A program that writes to a log file; its end is the end of its children too.

    The log, and all that the program writes, is for this user alone.
    """

    def __init__(
        self, command: list[str], environment: dict[str, str], log: Path, pass_fds: tuple[int, ...] = ()
    ) -> None:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log = log
        self._start = log.stat().st_size if log.exists() else 0
        try:
            with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
                self._popen = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    umask=OTHERS,
                    pass_fds=pass_fds,
                    preexec_fn=_follow if _can_follow() else None,  # noqa: PLW1509 - one call into libc, nothing else
                )
        except FileNotFoundError:
            raise ConfigError(f"{command[0]} is not installed", "pip install 'solera[node]'") from None

    @property
    def pid(self) -> int:
        """The program's number."""
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether the program itself is still there."""
        return self._popen.poll() is None

    def said(self) -> str:
        """Output so far."""
        return self.said_since(0)[0]

    def said_since(self, place: int) -> tuple[str, int]:
        """What it has written since a place in its log, and the place where that ends."""
        with self.log.open("rb") as file:
            file.seek(max(self._start, place))
            return file.read().decode(errors="replace"), file.tell()

    def ask_to_end(self) -> None:
        """Ask it to end, and do not wait."""
        if self.is_running:
            self._popen.terminate()

    def stop(self, patience: float = 10.0) -> None:
        """Ask it and its children to end; after `patience` seconds make them."""
        children = family(self.pid)
        if self.is_running:
            self._popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(patience)
        _end(children, signal.SIGTERM)  # most have gone with their parent
        _end(children, signal.SIGKILL)
        self._popen.kill()
        self._popen.wait()


def apart(do: Callable[P, T], *given: P.args, **more: P.kwargs) -> T:
    """What a function returns or raises in a process of its own, whose libraries end with it."""
    follow = _follow if _can_follow() else None
    with ProcessPoolExecutor(1, mp_context=get_context("fork"), initializer=follow) as pool:
        return pool.submit(do, *given, **more).result()


def family(pid: int) -> list[psutil.Process]:
    """All that a process has started and that still runs, and what that has started.

    Some may have a session of their own, so that the process group alone does not tell; and some outlive
    their parent, so that parenthood alone does not.
    """
    running = [each for each in psutil.process_iter(["ppid"]) if _runs(each)]
    found = {pid}
    while new := {each.pid for each in running if each.info["ppid"] in found or _group(each) == pid} - found:
        found |= new
    return [each for each in running if each.pid in found - {pid}]


def _group(process: psutil.Process) -> int | None:
    with suppress(ProcessLookupError, PermissionError):
        return os.getpgid(process.pid)
    return None


def _end(processes: list[psutil.Process], how: signal.Signals) -> None:
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.send_signal(how)
    until = time.monotonic() + 2.0
    while any(map(_runs, processes)) and time.monotonic() < until:
        time.sleep(0.05)


def _runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; one that nobody has asked about since it ended is a zombie."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is currently free."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Raise an error if the port is in use or cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise DeployError(
                f"cannot listen on {host} port {port}: {error.strerror}",
                "give another --port, or stop the program that uses this one",
            ) from None


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let being asked to end, or losing the terminal, end the children as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    kept = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
