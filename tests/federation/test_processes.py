"""Programs end with the one that started them, even if that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from commands import below, environment, is_running
from solera.core.errors import ConfigError
from solera.federation.operate.processes import Process, family

PARENT = """
import os, sys, time
from pathlib import Path
from solera.federation.operate.processes import Process

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


@pytest.mark.parametrize(
    ("more", "ending"), [("start_new_session=True", "time.sleep(60)"), ("", "sys.exit()")]
)
def test_a_process_ends_with_children_that_left_its_session_and_with_orphans(tmp_path, more, ending):
    child = "import time; time.sleep(60)"
    code = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}], {more}); {ending}"
    )
    process = Process([sys.executable, "-c", code], environment(), tmp_path / "log")
    until = time.monotonic() + 40
    while not (children := below(process.pid)) and time.monotonic() < until:
        time.sleep(0.02)
    if "exit" in ending:
        while process.is_running and time.monotonic() < until:
            time.sleep(0.02)
    assert len(children) == 1
    process.stop()
    assert not process.is_running
    assert not is_running(children[0])


def test_no_program_no_traceback(tmp_path):
    with pytest.raises(ConfigError, match="is not installed") as error:
        Process(["no-such-program"], {"PATH": ""}, tmp_path / "log")
    assert "solera[node]" in error.value.hint


def test_what_is_done_apart_returns_raises_and_ends(tmp_path):
    """Its libraries, and itself, are gone when the caller goes on, or is killed."""
    code = """
import sys, time
from solera.core.errors import DeployError
from solera.federation.operate.processes import apart
def loads(number):
    import decimal
    return number + 1
def fails():
    raise DeployError("no", "do this")
print(apart(loads, 1), "decimal" in sys.modules)
try:
    apart(fails)
except DeployError as error:
    print(error.message, error.hint)
print("begun", flush=True)
apart(time.sleep, 60)
"""
    process = Process([sys.executable, "-c", code], environment(), tmp_path / "log")
    try:
        while "begun" not in process.said() or not family(process.pid):
            assert process.is_running, process.said()
            time.sleep(0.05)
        children = family(process.pid)
        assert process.said().splitlines() == ["2 False", "no do this", "begun"]
        os.kill(process.pid, signal.SIGKILL)
        assert psutil.wait_procs(children, 20)[1] == []
    finally:
        process.stop()
