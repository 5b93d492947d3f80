"""Files of data sets: in the user's folder, in the cache, at the publisher, and converted for later loads."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import platformdirs
from numpy.typing import NDArray

from solera.core.errors import DataError
from solera.core.files import write_atomically

if TYPE_CHECKING:
    from solera.data.interactions import Interactions

ENVIRONMENT = "SOLERA_DATA"
Place = Literal["folder", "cache", "download", "by hand"]


@dataclass(frozen=True)
class Archive:
    """A publisher's zip file and its expected hash ("md5:…" or "sha256:…")."""

    url: str
    checksum: str


def cache_dir() -> Path:
    """The folder where downloads are kept."""
    return Path(platformdirs.user_cache_dir("solera"))


def user_dirs(data_dir: Path | None) -> list[Path]:
    """The user's folders in search order: the given one, then the one from the environment."""
    if data_dir and not data_dir.is_dir():
        raise DataError(f"the data folder {data_dir} does not exist", "check --data-dir")
    named = os.environ.get(ENVIRONMENT)
    return [Path(d) for d in (data_dir, named) if d]


def find(name: str, layouts: Sequence[Sequence[str]], archive: bool, data_dir: Path | None = None) -> Place:
    """Where a data set would be loaded from at present. The files of one layout make it complete."""
    own = [Path(name)] if Path(name).is_absolute() else []
    if any(has_files(root / name, files) for root in [*user_dirs(data_dir), *own] for files in layouts):
        return "folder"
    if any(has_files(cache_dir() / name, files) for files in layouts):
        return "cache"
    return "download" if archive else "by hand"


def has_files(folder: Path, files: Sequence[str]) -> bool:
    """Whether all of these files are in the folder."""
    return all(files_of(folder, file) for file in files)


def files_of(folder: Path, file: str) -> list[Path]:
    """The file of that name in a folder, if it is there; all that match a name with an asterisk."""
    if "*" in file:
        return sorted(each for each in folder.glob(file) if each.is_file())
    return [folder / file] if (folder / file).is_file() else []


def download(name: str, archive: Archive, wanted: Sequence[str]) -> None:
    """Download an archive and put the wanted files into the cache, in the given order."""
    home = cache_dir() / name
    home.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=f".{name}-") as scratch:
            members = _unpack(_retrieve(name, archive, Path(scratch)), Path(scratch))
            # Each file appears complete or not at all, despite interruptions and parallel processes.
            for file in wanted:
                if file in members:
                    members[file].replace(home / file)
    finally:
        with contextlib.suppress(OSError):
            home.rmdir()  # removes only an empty folder


def _retrieve(name: str, archive: Archive, folder: Path) -> Path:
    import pooch  # noqa: PLC0415 - slow to load, and most calls download nothing

    pooch.get_logger().setLevel("WARNING")  # otherwise it would announce the scratch folder
    try:
        file = pooch.retrieve(archive.url, archive.checksum, fname="archive.zip", path=folder)
    except ValueError:
        raise DataError(
            f"{archive.url} does not have the expected checksum {archive.checksum}",
            "try again; if that does not help, the publisher has changed the file: download it by hand and "
            f"put its files into <dir>/{name}/, with --data-dir <dir> or {ENVIRONMENT}=<dir>",
        ) from None
    except OSError as error:
        raise DataError(
            f"cannot download {archive.url}: {error}",
            f"check the network, or put the files into <dir>/{name}/, with --data-dir <dir> or "
            f"{ENVIRONMENT}=<dir>",
        ) from None
    return Path(file)


def _unpack(archive: Path, folder: Path) -> dict[str, Path]:
    """Extract the archive's files under their base names, so that no path can point outside the folder."""
    members = {}
    with zipfile.ZipFile(archive) as zipped:
        for number, member in enumerate(m for m in zipped.namelist() if not m.endswith("/")):
            members[member.rpartition("/")[2]] = folder / str(number)
            (folder / str(number)).write_bytes(zipped.read(member))
    return members


FORMAT = 2  # raise it when a reader or `Interactions.from_columns` returns something else for the same file
_LOG = logging.getLogger(__name__)
_ABOUT = "about.json"


def converted(
    files: Sequence[Path], how: Mapping[str, object], read: Callable[[], Interactions]
) -> Interactions:
    """The interactions in these files, from the cache, or read and then put there.

    `how` has all that decides what `read` makes of the files. A converted data set is arrays on disk that
    later loads map into memory, where processes share them. It is found by the content of its files and by
    how they are read, and may be deleted at any time.
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
    from solera.data.interactions import IdMap, Interactions  # noqa: PLC0415, loads polars

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
