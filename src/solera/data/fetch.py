"""Find a data set's files: in the user's folder, then in the cache, then at the publisher."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from solera.core.errors import DataError

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
    return all((folder / file).is_file() for file in files)


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
