"""Starts the server's app for every run; the guard starts this program beside the SuperLink.

Flower has a program for this, too. It asks the SuperLink for work without a secret, and gives every app its
token on the command line, where all users of the machine can read it. Either would let them take the place of
the server's app, which sees what nodes send. This program shows a secret, and passes the token in a file.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PushTaskOutputRequest, SendTaskHeartbeatRequest
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from solera.core.files import PRIVATE, write_atomically

_LOG = logging.getLogger("solera.server")
_POLL = 0.2  # seconds between looks for a task
_BEAT = 10.0  # seconds between words that an app is there
_TASK = "flwr-serverapp"
_KILLED = "the server's app was killed"
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


@contextmanager
def beside(runtime: str, ca: str | None, secret: bytes) -> Iterator[None]:
    """Run the program for the duration of the block."""
    command = [sys.executable, "-m", "solera.deploy.edge.executor", "--runtime", runtime]
    command += ["--insecure"] if ca is None else ["--root-certificates", ca]
    is_over = threading.Event()

    def follow() -> None:
        """A server that can start no app is worth nothing."""
        child.wait()
        if not is_over.is_set():
            os.write(2, b"what starts the server's app has ended, and the server with it\n")
            os._exit(1)

    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.stdin
        child.stdin.write(secret)
        child.stdin.close()
        threading.Thread(target=follow, daemon=True).start()
        try:
            yield
        finally:
            is_over.set()
            child.terminate()


class App:
    """One run's app, and a line to the SuperLink on its behalf.

    The SuperLink forgets an app that takes more than half a minute to start, has another one started beside
    it, and notices only after a minute that an app was killed. So this program says how its apps are doing.
    """

    def __init__(self, command: list[str], token: Path, line: RuntimeHttpClient) -> None:
        self._token, self._line = token, line
        self._next = 0.0
        self._process = subprocess.Popen(
            [*command, "--token-file", str(token), "--parent-pid", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the app sends what it writes to the SuperLink
            stderr=subprocess.DEVNULL,
        )

    def is_over(self) -> bool:
        """Whether it has ended; the SuperLink is told if it could not tell that itself, or that it lives."""
        code = self._process.poll()
        try:
            if code is None and time.monotonic() > self._next:
                self._next = time.monotonic() + _BEAT
                self._line.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            elif code is not None and code < 0:
                self._line.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.FAILED, details=_KILLED))
        except httpx.HTTPError as error:  # of a run that was stopped, or a server that is ending
            _LOG.warning("how an app is doing was not taken: %s", error)
        return code is not None

    def end(self) -> None:
        """Leave nothing of it behind."""
        self._process.kill()
        self._process.wait()
        self._line.close()
        self._token.unlink(missing_ok=True)


class Executor:
    """Apps of one SuperLink."""

    def __init__(self, runtime: str, access: list[str], secret: bytes, home: Path) -> None:
        self._command = [_TASK, "--runtime-api-address", runtime, *access]
        self._home, self._runtime = home, runtime
        self._running: dict[int, App] = {}
        self._ca = None if access == ["--insecure"] else Path(access[1]).read_bytes()
        self._client = self._line(
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_ACQUIRE),
        )

    def work(self) -> None:
        """Start apps for new runs while the parent process is alive."""
        parent = os.getppid()
        for former in self._home.glob("task-*.token"):
            former.unlink()
        while os.getppid() == parent:
            try:
                found = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=[_TASK]))
                if found.HasField("task") and found.token:
                    self._start(found.task.task_id, found.token)
            except (httpx.HTTPError, OSError) as error:
                _LOG.warning("no look for runs: %s", error)
                time.sleep(1)
            for task, app in list(self._running.items()):
                if app.is_over():
                    self._running.pop(task).end()
            time.sleep(_POLL)

    def _start(self, task: int, token: str) -> None:
        if task in self._running:  # its token is no longer good for anything
            self._running.pop(task).end()
        path = self._home / f"task-{task}.token"
        write_atomically(path, token, PRIVATE)
        line = self._line(
            RuntimeVersionHttpInterceptor(component_name=_TASK), RuntimeTokenHttpInterceptor(token)
        )
        self._running[task] = App(self._command, path, line)

    def _line(self, *interceptors: ProtobufClientInterceptor) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self._runtime,
            insecure=self._ca is None,
            root_certificates=self._ca,
            interceptors=list(interceptors),
        )


def main() -> None:
    """Started by the guard, which writes the secret to our standard input."""
    parser = argparse.ArgumentParser(description="Starts the server's app.")
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--root-certificates")
    given = parser.parse_args()
    logging.basicConfig(format="%(levelname)s: %(message)s")
    access = ["--insecure"] if given.insecure else ["--root-certificates", given.root_certificates]
    with suppress(KeyboardInterrupt):
        Executor(given.runtime, access, sys.stdin.buffer.read(), Path(os.environ["FLWR_HOME"])).work()


if __name__ == "__main__":
    main()
