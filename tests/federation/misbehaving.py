"""Nodes that go wrong, each as its folder's fault.txt says; what answers otherwise is the real code."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import numpy as np

from solera.federation.common.protocol import PROTOCOL, Packet
from solera.federation.node.worker import Answers, answer


def answers_of(device: Path) -> Answers:
    def answered(kind: str, packet: Packet) -> Packet:
        fault = (device / "fault.txt").read_text().strip() if (device / "fault.txt").exists() else ""
        if fault == "former":  # a version of Solera that is one older
            (device / "was-former").touch()
            reply = answer(kind, packet, device)
            return Packet({**reply.fields, "protocol": PROTOCOL - 1}, reply.arrays)
        if kind not in {"train", "mask"} or not fault:
            return answer(kind, packet, device)
        if fault.startswith("slow"):
            time.sleep(float(fault.split()[1]))
        if fault.startswith("late") and not (device / "was-late").exists():
            (device / "was-late").touch()
            time.sleep(float(fault.split()[1]))
        if fault == "killed":  # while it is training, and takes its node along
            (device / "fault.txt").write_text("")
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "full disk":
            wal = device / "device.db-wal"
            size = wal.stat().st_size if wal.exists() else 0
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        reply = answer(kind, packet, device)
        if fault == "full disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return changed(reply, fault)

    return answered


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


def failing_answers(device: Path) -> Answers:
    def answer(kind: str, packet: Packet) -> Packet:
        if kind == "end":
            os._exit(1)
        if kind == "fail":
            raise ValueError("/home/anna/films is not a device")
        return Packet({"kind": kind, "pid": os.getpid()}, packet.arrays)

    return answer
