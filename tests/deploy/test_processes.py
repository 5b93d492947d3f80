"""Programs end with the one that started them, even if that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import os, sys, time
from pathlib import Path
from solera.deploy.operate.processes import Process

child = Process([sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ), Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""


def runs(pid: int) -> bool:
    """Whether there is such a process that has not ended (Z: nobody has asked yet)."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot be asked for it")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_does_not_outlive_the_one_that_started_it(tmp_path, how):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    child = int(parent.stdout.readline())
    assert runs(child)
    os.kill(parent.pid, how)
    parent.wait()
    until = time.monotonic() + 60
    while runs(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not runs(child)
