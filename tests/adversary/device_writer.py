"""Adds to a device's history until it is killed, and says what is done."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from solera.device.device import Device


def main(folder: Path, user: str, begin: int) -> None:
    device = Device.open(folder)
    number = begin
    while True:
        added = device.add(str(number % 4), time=number, user=user)
        assert added or number == begin  # which may have been written and not said
        print(number, flush=True)
        number += 1
        time.sleep(0.02)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
