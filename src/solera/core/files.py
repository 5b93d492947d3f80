"""Files and folders that are on the disk in full or as they were, whatever interrupts their writing."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE = 0o600  # mode of a file that only its owner may read


def write_atomically(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Write a file, or leave the former one as it is. `mode` holds from the first byte, less the umask."""
    with replacing_file(path, mode) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing_file(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """An empty file beside `path`, which takes its place once the block has written it."""
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
    """An empty folder beside `path`, which takes its place once the block has filled it.

    What a kill leaves behind goes with the next folder of the same name, whatever number follows the name.
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
    """Make sure that what was renamed in a folder is on the disk under its new name."""
    if os.name == "nt":  # Windows opens no folders
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
