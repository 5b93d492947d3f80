"""Real containers of the image that packaging/Containerfile describes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commands import solera
from programs import TOOLS, program

IMAGE = "localhost/solera"
USER = 10001
FILMS = "id,title,year\na,Alien,1979\nb,Brazil,1985\nc,Casablanca,1942\nd,Dogville,2003\ne,Elephant,2003\n"
# As in the chart: a container that may write to its volumes alone
STRICT = ("--read-only", "--tmpfs=/tmp", "--cap-drop=all", "--security-opt=no-new-privileges")
PROGRAMS = ("buildah", "mmdebstrap", "podman", "podman-compose")

build_image = program("packaging/build_image")


def missing() -> str:
    """Why containers cannot be tested here, or nothing."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"needs {', '.join(lacking)}: apt-get install, and podman-compose 1.1 or later from PyPI"
    return "" if os.geteuid() == 0 else "needs root"


def wait_until(what: Callable[[], object], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(1)


class Podman:
    """podman with settings for this machine; everything that a test has started is removed at its end."""

    def __init__(self, folder: Path) -> None:
        self.env = build_image.environment(folder)
        self.started: list[str] = []
        self.volumes: list[str] = []

    def __call__(
        self,
        *words: object,
        program: str = "podman",
        check: bool = True,
        seconds: int = 300,
        stderr: bool = False,
    ) -> str:
        """What a command prints, or what it says on stderr."""
        command = [program, *map(str, words)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=self.env, timeout=seconds
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stderr if stderr else done.stdout

    def start(self, name: str, *words: object) -> None:
        """A container that stays."""
        self.started.append(name)
        self("run", "--detach", "--name", name, *words)

    def volume(self, name: str) -> str:
        self.volumes.append(name)
        return self("volume", "create", name).strip()

    def inspect(self, name: str, what: str) -> Any:
        return json.loads(self("inspect", "--format", f"{{{{json {what}}}}}", name))

    def close(self) -> None:
        for name in self.started:
            self("rm", "--force", "--volumes", "--time", 5, name, check=False)
        for name in self.volumes:
            self("volume", "rm", "--force", name, check=False)


def build(tag: str = IMAGE, *options: str) -> None:
    """Build an image; layers that have not changed are used again."""
    tool = TOOLS / "packaging" / "build_image.py"
    subprocess.run([sys.executable, str(tool), "--tag", tag, *options], check=True, timeout=3600)


@contextmanager
def podman(folder: Path) -> Iterator[Podman]:
    run = Podman(folder)
    try:
        yield run
    finally:
        run.close()


def make_files(folder: Path, host: str, settings: str) -> None:
    """For the image's user: `keys` for a server and two nodes, `nodes` with their public keys, `settings`."""
    (folder / "items.csv").write_text(FILMS)
    (folder / "settings").mkdir()
    (folder / "settings" / "serve.toml").write_text(settings)
    bundle = folder / "settings" / "films.bundle"
    publisher = folder / "settings" / "publisher"
    for words in (
        ("bundle", "keygen", "-o", publisher),
        (
            "bundle",
            "new",
            "fedmf",
            "--catalogue",
            folder / "items.csv",
            "-o",
            bundle,
            "--key",
            f"{publisher}.key",
        ),
        ("federation", "keys", folder / "keys", "--nodes", 2, "--host", host),
    ):
        made = solera(*words)
        assert made.returncode == 0, made.stderr
    (folder / "nodes").mkdir()
    for public in (folder / "keys" / "nodes").glob("*.pub"):
        shutil.copy(public, folder / "nodes")
    for path in (folder / "keys", folder / "nodes", folder / "settings"):
        for each in (path, *path.rglob("*")):
            os.chown(each, USER, USER)
