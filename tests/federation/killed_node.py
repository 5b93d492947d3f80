"""A node at work until it is killed: it takes interactions, answers orders, and says what it has finished."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from solera.device.device import Device
from solera.federation.common.protocol import Packet
from solera.federation.node.node import Node


def main(folder: Path, orders: Path, begin: int) -> None:
    device = Device.open(folder)
    node = Node(device, threads=1)
    packets: list[Packet] = pickle.loads(orders.read_bytes())  # written by the test itself
    done = begin
    while True:
        item = str(done % 20)
        assert device.add(item, time=1_000_000 + done, user="u0")
        print(done, flush=True)
        order = packets[done % len(packets)]
        assert "declined" not in node.answer("train", order).fields
        done += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
