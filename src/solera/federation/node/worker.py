"""What answers for a node, from its device's folder; and the process that does, for as long as there is work.

node_process.py receives a message, hands its bytes to this process over a private pipe, and takes the answer.
Without work, the process is ended, and its memory is free for others.

    python -m solera.federation.node.worker --pipe NUMBER --device FOLDER
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

from solera.core.errors import SoleraError
from solera.federation.common.json_log import in_round, log_as_json
from solera.federation.common.packets import from_bytes, to_bytes
from solera.federation.common.protocol import Packet, RefusalError, declined

_LOG = logging.getLogger("solera.node")
FAILED = "the node could not answer; its log says why"  # an error's own words may tell of the device
WORKER_APP = "solera.federation.node.worker:answers_of"
Answers = Callable[[str, Packet], Packet]  # the kind of a message and what it says; the reply


def answer(kind: str, packet: Packet, folder: Path) -> Packet:
    """Open the device in the folder, answer one message, and close the device again."""
    from solera.device.device import Device  # noqa: PLC0415
    from solera.federation.node.masked_round import open_node  # noqa: PLC0415 - torch, only where messages are answered

    try:
        device = Device.open(folder)
        try:
            return open_node(device).answer(kind, packet)
        finally:
            device.close()
    except SoleraError as error:  # its words may name files of this device, and no outbox can be written
        _LOG.warning("declined to %s: %s", kind, error)
        return declined("this node could not answer, nor record that it did not")


def answers_of(folder: Path) -> Answers:
    """Answers of the node whose device is in that folder."""
    return lambda kind, packet: answer(kind, packet, folder)


def received(body: bytes, shared: bytes) -> Packet:
    """What a server has sent: to this device alone, and to many."""
    packet = from_bytes(body)
    return Packet(packet.fields, from_bytes(shared).arrays | packet.arrays) if shared else packet


def failed() -> bytes:
    """The answer of a node that could make none."""
    return to_bytes(declined(FAILED))


def _answered(kind: str, packet: Packet, answers: Answers) -> bytes:
    began = time.perf_counter()
    try:
        reply = to_bytes(answers(kind, packet))
    except Exception:  # the node goes on, whatever a message does to it
        _LOG.exception("no answer to %s", kind)
        reply = failed()
    seconds = time.perf_counter() - began
    _LOG.info("answered", extra={"fields": {"kind": kind, "seconds": round(seconds, 4)}})
    return reply


def work(pipe: Connection, answers: Answers) -> None:
    """Answer messages until the other end of the pipe is closed; a text says why a message cannot be read."""
    while True:
        try:
            kind, round_, body, shared = pipe.recv()
        except EOFError:
            return
        reply: bytes | str
        with in_round(round_):
            try:
                packet = received(body, shared)
            except RefusalError as error:
                reply = error.message
            else:
                reply = _answered(kind, packet, answers)
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
