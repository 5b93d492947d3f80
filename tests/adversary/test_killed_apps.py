"""The server's app, killed or slow: one app at a time, and a run that ends when its app does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from attack import attack
from kept import command_line, wait_until
from served import Server

from commands import below
from solera.core.errors import RunError
from solera.deploy.common import flower
from solera.deploy.common.credential import read_token
from solera.deploy.operate.control import Control, control
from solera.deploy.server.folder import FederationFolder

pytestmark = pytest.mark.xdist_group("apps")
HOLDER = """
import sys, time
from pathlib import Path
from solera.deploy.server.folder import FederationFolder

with FederationFolder(Path(sys.argv[1])).alone(0):
    print("here", flush=True)
    time.sleep(60)
"""


@attack(
    "crash",
    "Two apps never work on one federation at a time.",
    before="a run whose command was killed went on beside the one that took its place",
)
def test_one_app_at_a_time(tmp_path, reached):
    folder = FederationFolder(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"here\n"
        with pytest.raises(RunError, match="another run"), folder.alone(0):
            pass
        holder.kill()
    with folder.alone(5):
        pass
    reached("the second one waits, and gives up")


@pytest.fixture
def asked(server: Server) -> Iterator[Control]:
    with control(server.address, read_token(flower.home_of(server.folder))) as line:
        yield line
        line.stop_all()
        wait_until(lambda: not apps(server), 60, "an app does not end")


def apps(server: Server) -> list[int]:
    return [pid for pid in below(server.pid) if "flwr-serverapp" in command_line(pid)]


def begin(server: Server, asked: Control) -> tuple[int, int]:
    """A run of an app that takes its time: the run's number, and the app's."""
    app = flower.write_app(flower.home_of(server.folder), server_app="waiting_app:server")
    number = asked.start(app, {"folder": str(server.folder)})
    wait_until(lambda: apps(server), 60, "no app")
    (pid,) = apps(server)
    return number, pid


@attack(
    "crash",
    "A run ends when its app is killed.",
    before="it went on for a minute without an app",
)
def test_a_killed_app(server, asked, reached):
    number, pid = begin(server, asked)
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    wait_until(lambda: asked.ending(number).how, 15, "the run goes on without its app")
    ending = asked.ending(number)
    assert (ending.how, ending.details) == ("failed", "the server's app was killed")
    reached(f"after {time.monotonic() - began:.0f} s")


def test_a_run_that_takes_the_place_of_others(server, asked):
    number, _ = begin(server, asked)
    assert asked.stop_all() == [number]
    assert asked.ending(number).how == "stopped"
    assert asked.stop_all() == []


@pytest.mark.slow
@attack(
    "crash",
    "An app that takes long to start is started once.",
    before="a second one was started after half a minute, and its failure ended the run of the first",
)
def test_an_app_that_takes_long_to_start(server, asked, reached):
    number, pid = begin(server, asked)
    os.kill(pid, signal.SIGSTOP)
    for _ in range(45):
        assert apps(server) == [pid]
        time.sleep(1)
    os.kill(pid, signal.SIGCONT)
    time.sleep(10)
    assert asked.ending(number).how == ""
    reached("one app")
