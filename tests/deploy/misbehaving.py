"""Nodes that go wrong, each as its folder's fault.txt says; what answers otherwise is the real app."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from solera.deploy.common.messages import from_content, to_content
from solera.deploy.common.protocol import Packet
from solera.deploy.node.app import make_app


def app_of(device: Path) -> ClientApp:
    fault = (device / "fault.txt").read_text().strip() if (device / "fault.txt").exists() else ""

    def mod(message: Message, context: Context, call_next) -> Message:
        training = message.metadata.message_type.startswith("train")
        if not training or not fault:
            return call_next(message, context)
        if fault.startswith("slow"):
            time.sleep(float(fault.split()[1]))
        if fault.startswith("late") and not (device / "was-late").exists():
            (device / "was-late").touch()
            time.sleep(float(fault.split()[1]))
        if fault == "killed":  # while it is training, and takes its SuperNode along
            (device / "fault.txt").write_text("")
            parent = int((device / "supernode.pid").read_text())
            os.kill(parent, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "full disk":
            wal = device / "device.db-wal"
            size = wal.stat().st_size if wal.exists() else 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        reply = call_next(message, context)
        if fault == "full disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        reply.content = to_content(changed(from_content(reply.content), fault))
        return reply

    if fault == "twice":
        worker: Any = sys.modules["__main__"]
        push = worker.push_message

        def push_twice(client, message: Message, context: Context) -> None:
            push(client, message, context)
            push(client, message, context)

        worker.push_message = push_twice
    return make_app([mod], device_of=lambda context: device)


def changed(packet: Packet, fault: str) -> Packet:
    fields, arrays = dict(packet.fields), dict(packet.arrays)
    match fault:
        case "shapes":
            arrays["change/items"] = arrays["change/items"][:, :-1]
        case "nan":
            arrays["change/items"] = np.full_like(arrays["change/items"], np.nan)
        case "undeclared":
            arrays["history"] = np.arange(5, dtype="<i4")
        case "round":
            fields["round"] += 1
        case "catalogue":
            fields["version"] += 1
    return Packet(fields, arrays)
