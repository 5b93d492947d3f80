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
    _sync_names(path.parent)


@contextmanager
def replacing_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield an empty folder beside `path` that replaces `path` when the block ends.

    A partial folder left by a killed process is removed when the next folder with the same name, whatever its
    number, is written.
    """
    partial = path.with_name(f".{path.name.partition('-')[0]}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=mode)
    try:
        yield partial
        shutil.rmtree(path, ignore_errors=True)
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _sync_names(path.parent)


def _sync_names(folder: Path) -> None:
    """Flush the renames in a folder to disk."""
    if os.name == "nt":  # Windows cannot open folders
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
