"""The process that answers for a node, the only one that loads torch, for as long as there is work.

node_process.py reads a message, hands its content to this process over a private pipe, and takes the answer.
Without work, the process is ended, and its memory is free for others.

    python -m solera.federation.node.worker --pipe NUMBER --device FOLDER
"""

from __future__ import annotations

import argparse
import logging
import time
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from solera.federation.common.json_log import in_round, log_as_json
from solera.federation.common.protocol import Packet
from solera.federation.node.answers import Answers

_LOG = logging.getLogger("solera.node")
WORKER_APP = "solera.federation.node.answers:answers_of"


def _answer(kind: str, packet: Packet, answers: Answers) -> Packet | None:
    began = time.perf_counter()
    reply: Packet | None = None
    try:
        reply = answers(kind, packet)
    except Exception:  # the node goes on, whatever a message does to it
        _LOG.exception("no answer to %s", kind)
    seconds = time.perf_counter() - began
    _LOG.info("answered", extra={"fields": {"kind": kind, "seconds": round(seconds, 4)}})
    return reply


def work(pipe: Connection, answers: Answers) -> None:
    """Answer messages until the other end of the pipe is closed. None stands for an answer that failed."""
    while True:
        try:
            kind, packet, round_ = pipe.recv()
        except EOFError:
            return
        with in_round(round_):
            reply = _answer(kind, packet, answers)
        try:
            pipe.send(reply)
        except BrokenPipeError:
            return


def main() -> None:
    """Started by node_process.py."""
    parser = argparse.ArgumentParser(description="Answers for a node.")
    parser.add_argument("--pipe", type=int, required=True, help="number of the open file to talk over")
    parser.add_argument("--device", type=Path, required=True)
    parser.add_argument("--app", default=WORKER_APP, help="module:function from a folder to answers")
    given = parser.parse_args()
    log_as_json()
    module, _, function = given.app.partition(":")
    work(Connection(given.pipe), getattr(import_module(module), function)(given.device))


if __name__ == "__main__":
    main()
