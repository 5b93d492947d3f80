"""Atomic writes of files and folders: after an interruption, either the new or the old version is on disk."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE = 0o600  # mode of a file that only its owner may read


def write_atomically(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Write a file atomically, or keep the old one. `mode`, less the umask, holds from the first byte."""
    with replacing_file(path, mode) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing_file(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield an empty file beside `path` that replaces `path` when the block ends."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_names(path.parent)


@contextmanager
def creating_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield an empty folder beside `path` that gets this name when the block ends.

    `path` must not exist: few systems can replace a folder in one step. What is written again and again gets
    a new number each time. What a killed process left is removed with the next such folder.
    """
    partial = path.with_name(f".{path.name.partition('-')[0]}.partial")
    for left in (partial, _removed(path)):
        shutil.rmtree(left, ignore_errors=True)
    partial.mkdir(mode=mode)
    try:
        yield partial
        sync_names(partial)
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sync_names(path.parent)


def numbered_folders(parent: Path, prefix: str) -> list[Path]:
    """The folders PREFIX0, PREFIX1, … in a folder, in the order of their numbers."""
    found = [path for path in parent.glob(f"{prefix}*") if path.name[len(prefix) :].isdigit()]
    return sorted(found, key=lambda path: int(path.name[len(prefix) :]))


@contextmanager
def next_folder(parent: Path, prefix: str, number: int, mode: int = 0o777) -> Iterator[Path]:
    """Yield an empty folder that takes the place of all numbered ones when the block ends.

    Its number is the given one, or the next after those that are there. An interruption leaves the former
    folder, the new one, or both.
    """
    former = numbered_folders(parent, prefix)
    if former:
        number = max(number, int(former[-1].name[len(prefix) :]) + 1)
    with creating_folder(parent / f"{prefix}{number}", mode) as partial:
        yield partial
    for old in former:
        remove_folder(old)


def remove_folder(path: Path) -> None:
    """Remove a folder, if it is there. After an interruption it is there as a whole, or not at all."""
    hidden = _removed(path)
    shutil.rmtree(hidden, ignore_errors=True)
    if path.is_dir():
        path.rename(hidden)
        shutil.rmtree(hidden)


def _removed(path: Path) -> Path:
    return path.with_name(f".{path.name.rstrip('-0123456789')}.removed")


def sync_names(folder: Path) -> None:
    """Flush the renames in a folder to disk."""
    if os.name == "nt":  # Windows cannot open folders
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
