"""The worker process of a node, which runs only Solera's code.

Left to itself, Flower starts a process for every message and runs in it whatever program the server has sent
along. A node that did so would let the server read every history. This worker takes the same tasks from the
node's SuperNode, over the same local interface, looks at the message, and leaves the program alone. That it
has torch loaded already makes it faster, too.

    python -m solera.deploy.node.worker --superexec-auth-secret-file SECRET --runtime HOST:PORT \\
        --device FOLDER --supernode PID
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import time
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path

import httpx
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from solera.deploy.common.flower import WORKER_APP
from solera.deploy.common.json_log import in_round, log_as_json
from solera.deploy.node import masked_round  # noqa: F401 - loads torch once, before the first message

_LOG = logging.getLogger("solera.node")
_POLL = 0.1  # seconds between looks for a task
_TASK = "flwr-clientapp"
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
_FAILED = "the node could not answer; its log says why"  # an error's own words may tell of the device


class LeftError(Exception):
    """The SuperNode works on another message: what is missing of this one never comes."""


class Tasks:
    """The SuperNode's tasks, in turn."""

    def __init__(self, client: RuntimeHttpClient) -> None:
        self._client = client
        self._next = ""  # token of a task that was taken early
        self._lock = threading.Lock()

    def take(self) -> str:
        """The token of the next task; empty if there is none."""
        with self._lock:
            token, self._next = self._next or self._ask(), ""
            return token

    def has_more(self) -> bool:
        """Whether the SuperNode has gone on to the next task."""
        with self._lock:
            self._next = self._next or self._ask()
            return bool(self._next)

    def _ask(self) -> str:
        found = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=[_TASK]))
        return str(found.token) if found.HasField("task") else ""


class Line(RuntimeHttpClient):
    """A line to the SuperNode that does not wait for what never comes.

    A SuperNode makes a task of a message before all of it is there. If the run ends meanwhile, it drops the
    message, keeps the task, and goes on. Flower would wait for the rest for more than an hour.
    """

    tasks: Tasks | None = None

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # noqa: N802 - Flower's name
        """A part of a message; an error if it is missing and the SuperNode has gone on."""
        found = super().PullObject(request)
        if not found.object_available and self.tasks is not None and self.tasks.has_more():
            raise LeftError
        return found


def work(runtime: str, secret: bytes, app: ClientApp, supernode: int) -> None:
    """Answer messages while the parent process and the SuperNode are running."""
    parent = os.getppid()
    tasks = Tasks(
        _line(
            runtime,
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_ACQUIRE),
        )
    )
    while os.getppid() == parent:
        try:
            if token := tasks.take():
                answer(runtime, token, app, tasks)
                continue
        except httpx.HTTPError as error:  # it has yet to start, or has ended: whoever started us decides
            _LOG.warning("the SuperNode does not answer: %s", error)
            time.sleep(1)
        time.sleep(_POLL)
    with suppress(ProcessLookupError):  # a node without a worker would take messages and never answer
        os.kill(supernode, signal.SIGTERM)


def answer(runtime: str, token: str, app: ClientApp, tasks: Tasks | None = None) -> None:
    """Work on one message."""
    client = _line(
        runtime,
        RuntimeVersionHttpInterceptor(component_name=_TASK),
        RuntimeTokenHttpInterceptor(token),
    )
    client.tasks = tasks
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    status, details = SubStatus.COMPLETED, ""
    context: Context | None = None
    round_ = ExitStack()
    try:
        try:
            message, context, _run, _program = pull_task_input(client)
        except httpx.HTTPError:
            raise
        except Exception as error:  # its run has ended, and the SuperNode has dropped it
            _LOG.warning("a message did not come whole: %r", error)
            status, details = SubStatus.FAILED, _FAILED
            return
        round_.enter_context(in_round(message.metadata.group_id))
        began = time.perf_counter()
        try:
            reply = app(message=message, context=context)
        except Exception:  # the node goes on, whatever a message does to it
            _LOG.exception("no answer to %s", message.metadata.message_type)
            status, details = SubStatus.FAILED, _FAILED
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, _FAILED), reply_to=message)
        kind, seconds = message.metadata.message_type, time.perf_counter() - began
        _LOG.info("answered", extra={"fields": {"kind": kind, "seconds": round(seconds, 4)}})
        push_message(client, reply, context)
    finally:
        round_.close()
        push_task_output(client=client, context=context, sub_status=status, details=details)
        heartbeat.stop()
        client.close()


def _line(runtime: str, *interceptors: ProtobufClientInterceptor) -> Line:
    return Line.from_server_address(
        server_address=runtime,
        insecure=True,  # both ends are on this machine
        root_certificates=None,
        interceptors=list(interceptors),
        retry_invoker=make_simple_http_retry_invoker(),
    )


def main() -> None:
    """Started by `solera node start`."""
    parser = argparse.ArgumentParser(description="Answers for a node.")
    parser.add_argument("--superexec-auth-secret-file", type=Path, required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--device", type=Path, required=True)
    parser.add_argument("--supernode", type=int, required=True, help="its process number")
    parser.add_argument("--app", default=WORKER_APP, help="module:function from a folder to an app")
    given = parser.parse_args()
    log_as_json()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise a line for every look for a task
    secret = given.superexec_auth_secret_file.read_bytes()
    module, _, function = given.app.partition(":")
    work(given.runtime, secret, getattr(import_module(module), function)(given.device), given.supernode)


if __name__ == "__main__":
    main()
