"""Data sets converted once into arrays on disk. Later loads map them into memory, where processes share them.

A converted data set is found by the content of its files and by how they are read. The cache can be deleted
at any time; it is written again at the next load.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solera.core.files import write_atomically
from solera.data.fetch import cache_dir
from solera.data.interactions import IdMap, Interactions

FORMAT = 2  # raise it when a reader or `Interactions.from_columns` returns something else for the same file
_LOG = logging.getLogger(__name__)
_ABOUT = "about.json"


def converted(
    files: Sequence[Path], how: Mapping[str, object], read: Callable[[], Interactions]
) -> Interactions:
    """The interactions in these files, from the cache, or read and then put there.

    `how` has all that decides what `read` makes of the files.
    """
    place = converted_dir() / _key(files, how)
    if (found := _open(place)) is not None:
        return found
    data = read()
    try:
        _store(place, data)
    except OSError as error:
        _LOG.warning("the converted data cannot be kept for the next time: %s", error)
        return data
    return _open(place) or data


def converted_dir() -> Path:
    """The folder with the converted data sets."""
    return cache_dir() / "converted"


def clear() -> int:
    """Delete all converted data sets, and return their bytes."""
    folder = converted_dir()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    shutil.rmtree(folder, ignore_errors=True)
    return size


def _key(files: Sequence[Path], how: Mapping[str, object]) -> str:
    content = {"format": FORMAT, "how": dict(how), "files": [_digest(file) for file in files]}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def _digest(file: Path) -> str:
    """The hash of a file's content. It is kept beside the cache until the file's size or time changes."""
    stat = file.stat()
    seen = f"{file.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}"
    kept = converted_dir() / "digests" / hashlib.blake2b(seen.encode(), digest_size=16).hexdigest()
    with contextlib.suppress(OSError):
        return kept.read_text(encoding="ascii")
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "blake2b").hexdigest()
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, digest)
    return digest


def _store(place: Path, data: Interactions) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".partial-") as scratch:
        partial = Path(scratch) / "data"
        partial.mkdir()
        arrays: dict[str, NDArray[Any] | None] = {
            "users": data.users,
            "items": data.items,
            "times": data.times,
            "user_ids": data.user_map.ids,
            "item_ids": data.item_map.ids,
            "first_seen": data.first_seen,
        }
        for name, array in arrays.items():
            if array is not None:
                np.save(partial / f"{name}.npy", array)
        about = {"name": data.name, "one_clock": data.one_clock, "titles": data.titles}
        (partial / _ABOUT).write_text(json.dumps(about), encoding="utf-8")
        with contextlib.suppress(OSError):  # another process was faster
            partial.rename(place)


def _open(place: Path) -> Interactions | None:
    try:
        about = json.loads((place / _ABOUT).read_text(encoding="utf-8"))
        arrays = {
            # Copy on write: torch warns of arrays that it cannot write to.
            path.stem: np.load(path, mmap_mode="c", allow_pickle=False)
            for path in place.glob("*.npy")
        }
        return Interactions(
            name=about["name"],
            users=arrays["users"],
            items=arrays["items"],
            times=arrays.get("times"),
            user_map=IdMap(arrays["user_ids"]),
            item_map=IdMap(arrays["item_ids"]),
            titles=None if about["titles"] is None else tuple(about["titles"]),
            one_clock=about["one_clock"],
            first_seen=arrays.get("first_seen"),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError):
        shutil.rmtree(place, ignore_errors=True)  # damaged: it is made again
        return None
