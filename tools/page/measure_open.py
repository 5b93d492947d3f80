"""Measure how soon `solera device open` shows its page: seconds, in all and of CPU, until its answers.

python tools/page/measure_open.py DEVICE [TIMES]

DEVICE is a device's folder with a history. The best of TIMES (5) is printed, and all of them after it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request

import psutil

STEPS = ("link", "page", "about", "recommendations")


def main(folder: str, times: str = "5") -> int:
    """Print a row for each step."""
    taken = [_open(folder) for _ in range(int(times))]
    for step, *found in zip(STEPS, *taken, strict=True):
        wall, cpu = ([each[which] for each in found] for which in (0, 1))
        shown = ", ".join(f"{each:.2f}" for each in wall)
        print(f"{step:16} {min(wall):.2f} s ({shown}), {min(cpu):.2f} s of CPU")
    return 0


def _open(folder: str) -> list[tuple[float, float]]:
    """Seconds and seconds of CPU until each step is done."""
    begin = time.perf_counter()
    command = (sys.executable, "-m", "solera", "device", "open", folder, "--no-browser", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        told = ""
        while '"link"' not in told or not told.rstrip().endswith("}"):
            told += process.stdout.readline()
        link = json.loads(told)["link"]
        address, token = link.split("#token=")
        found, own = [], psutil.Process(process.pid)

        def done() -> None:
            used = own.cpu_times()
            found.append((time.perf_counter() - begin, used.user + used.system))

        done()
        for path in ("", "page/about", "page/recommendations?count=24"):
            request = urllib.request.Request(address + path, headers={"Authorization": f"Bearer {token}"})
            _ask(request)
            done()
        process.terminate()
    return found


def _ask(request: urllib.request.Request) -> None:
    """Wait for the answer; the service listens a moment after it has told its link."""
    until = time.perf_counter() + 30
    while True:
        try:
            with urllib.request.urlopen(request) as answer:
                answer.read()
            return
        except ConnectionError:
            if time.perf_counter() > until:
                raise
            time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
