"""File permissions: only the user who runs a server or node can read its files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OTHERS = stat.S_IRWXG | stat.S_IRWXO  # as a umask: nothing for the group, nothing for everybody else


@contextmanager
def private_files() -> Iterator[None]:
    """Make files written in the block, also by child processes, private to this user."""
    former = os.umask(OTHERS)
    try:
        yield
    finally:
        os.umask(former)


def private_folder(path: Path) -> Path:
    """A folder that no other user can enter; one that is there already is closed."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _close(path)
    return path


def close(path: Path) -> None:
    """Take other users' rights off a file, or off a folder and all that is in it.

    What belongs to somebody else, and what a link points to, stays as it is.
    """
    _close(path)
    if path.is_dir() and not path.is_symlink():
        for each in path.rglob("*"):
            _close(each)


def is_open(path: Path) -> bool:
    """Whether other users may do anything with a file or folder."""
    return bool(path.stat().st_mode & OTHERS)


def _close(path: Path) -> None:
    with suppress(FileNotFoundError):  # SQLite's log comes and goes
        found = path.lstat()
        mode = stat.S_IMODE(found.st_mode)
        if mode & OTHERS and found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode):
            path.chmod(mode & ~OTHERS)
