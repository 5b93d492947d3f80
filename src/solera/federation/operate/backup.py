"""Backup and restore of a federation's folder on its server.

A backup is one compressed tar file with the SHA-256 of all its files, so a damaged copy is noticed before
anything is replaced. Of the database, a backup has the devices with their keys and which of them were
revoked, whatever database it is; what is under way is left out. A restored federation goes on in the database
that its next server is started with. One that lives on beside it is fenced off: see store.py.

Devices open no sum of a round twice, and under --dp no round may be released twice. Restoring therefore
counts all rounds that may have been released since the backup as lost, and their ε as spent.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from solera import __version__
from solera.core.errors import DeployError, RunError
from solera.core.files import PRIVATE, replacing_file, sync_names, write_atomically
from solera.federation.common.address import home_of
from solera.federation.common.private_files import private_folder
from solera.federation.operate.server import Devices, Known, is_running, store_of
from solera.federation.server.folder import FederationFolder
from solera.federation.web.database import SQLITE, Place

_MANIFEST = "backup.json"
_PATTERNS = (
    "*.json",
    "*.jsonl",
    "*.bundle",
    "checkpoint-*/**/*",
    "opening/*",
    "versions/**/*",
)
_DEVICES = "network/devices.json"
_AGAIN = "use another backup"


def backup(folder: Path, output: Path, *, wait: float = 600.0) -> dict[str, Any]:
    """Write a consistent copy, and check that it restores. A round that is under way is waited for."""
    federation = FederationFolder.open(folder)
    if output.exists():
        raise RunError(f"{output} exists already", "give another -o")
    try:
        with federation.alone(wait), replacing_file(output, PRIVATE) as partial:
            with tarfile.open(partial, "w:gz") as archive:
                about = _written(archive, federation)
            with _unpacked(partial, output.parent) as (_, again):
                again.load()
    except OSError as error:
        raise RunError(
            f"{output} cannot be written: {error.strerror}", "make room, or give another -o"
        ) from None
    return about | {"file": str(output), "bytes": output.stat().st_size}


def _written(archive: tarfile.TarFile, federation: FederationFolder) -> dict[str, Any]:
    """Add every file as it was read, once: some of them change while the server runs."""
    digests = {}
    for name, content in _contents(federation.path):
        digests[name] = hashlib.sha256(content).hexdigest()
        _add(archive, name, content)
    about = {
        "solera": __version__,
        "federation": federation.identity.federation,
        "time": round(time.time(), 3),
        "rounds_done": federation.progress.rounds_done,
        "sha256": digests,
    }
    _add(archive, _MANIFEST, json.dumps(about, indent=2).encode())
    return about


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for pattern in _PATTERNS:
        for path in sorted(folder.glob(pattern)):
            name = path.relative_to(folder)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                yield str(name), path.read_bytes()
    if (devices := _devices(folder)) is not None:
        yield _DEVICES, devices.model_dump_json().encode()


def restore(source: Path, folder: Path, *, lost_rounds: int | None = None) -> dict[str, Any]:
    """Replace a folder by a backup. The former content is moved to FOLDER.before-restore-TIME."""
    _check_stopped(folder)
    aside = folder.with_name(f".{folder.name}.replaced")
    try:
        if aside.exists():  # a restore was killed
            aside.rename(_beside(folder) if folder.exists() else folder)
        with _unpacked(source, folder.resolve().parent) as (about, federation):
            former = FederationFolder(folder)
            released = _released_since(federation, former, lost_rounds)
            _count_as_lost(federation, released, former.opened_cohort())
            _keep_devices(federation.path, folder)
            kept = None
            if folder.exists():
                with former.alone(0):  # not while a run is under way
                    folder.rename(aside)
            federation.path.rename(folder)
            if aside.exists():
                kept = _beside(folder)
                aside.rename(kept)
            sync_names(folder.resolve().parent)
    except OSError as error:
        raise RunError(
            f"{folder} cannot be written: {error.strerror}", "make room, then restore again: nothing is lost"
        ) from None
    return about | {"folder": str(folder), "former": kept and str(kept), "lost_rounds": released}


def _check_stopped(folder: Path) -> None:
    """Refuse to replace the folder of a server that runs."""
    if is_running(folder):
        raise RunError(f"the server of {folder} is running", "stop it, restore, then start it again")


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), PRIVATE, int(time.time())
    archive.addfile(member, io.BytesIO(content))


@contextmanager
def _unpacked(source: Path, beside: Path) -> Iterator[tuple[dict[str, Any], FederationFolder]]:
    """The manifest and the folder in a backup, if every file is as it was written; removed afterwards."""
    with tempfile.TemporaryDirectory(dir=beside, prefix=".restore-", ignore_cleanup_errors=True) as scratch:
        fresh = Path(scratch) / "folder"
        fresh.mkdir(mode=0o700)
        about, digests = {}, {}
        try:
            with tarfile.open(source, "r:gz") as archive:
                for member in archive:
                    if (file := archive.extractfile(member)) is None:
                        continue
                    if member.name == _MANIFEST:
                        about = json.loads(file.read())
                    elif (path := _inside(fresh, member.name)) is not None:
                        with path.open("xb+") as written:
                            shutil.copyfileobj(file, written)
                            os.fsync(written.fileno())
                            written.seek(0)
                            digests[member.name] = hashlib.file_digest(written, "sha256").hexdigest()
                        path.chmod(PRIVATE)
                    else:
                        digests[member.name] = "outside"
            told: dict[str, str] = about["sha256"]
        except (EOFError, tarfile.TarError, zlib.error, KeyError, ValueError, FileExistsError) as error:
            raise RunError(f"{source} is not a backup, or is damaged: {error}", _AGAIN) from None
        except OSError as error:
            if error.filename is not None or error.errno == errno.ENOSPC:
                raise
            raise RunError(f"{source} is not a backup, or is damaged: {error}", _AGAIN) from None
        wrong = sorted(name for name in told.keys() | digests.keys() if told.get(name) != digests.get(name))
        if wrong:
            raise RunError(f"{source} is damaged: {', '.join(wrong[:3])}", _AGAIN)
        for each in (fresh, *(path for path in fresh.rglob("*") if path.is_dir())):
            sync_names(each)
        yield about, FederationFolder.open(fresh)


def _inside(folder: Path, name: str) -> Path | None:
    """Where a member of an archive goes; None if that is not in the folder."""
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts:
        return None
    path = folder / place
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _beside(folder: Path) -> Path:
    """A new name for what was there before."""
    at = int(time.time())
    while (path := folder.with_name(f"{folder.name}.before-restore-{at}")).exists():
        at += 1
    return path


def _devices(folder: Path) -> Devices | None:
    """The devices that a database knows, or a backup that no server was started with since."""
    if (home_of(folder) / "server.json").exists():
        with store_of(folder) as store:
            return Devices(
                devices=tuple(Known(key=key, name=name, revoked=gone) for key, name, gone in store.known())
            )
    path = folder / _DEVICES
    return Devices.model_validate_json(path.read_bytes()) if path.exists() else None


def _keep_devices(fresh: Path, folder: Path) -> None:
    """Let the next server know the devices. A key that was revoked after the backup stays revoked.

    A database that is not in the folder stays where it is, with all it knows; whoever coordinates with it now
    is fenced off.
    """
    former = _devices(folder) if folder.exists() else None
    both = [each for found in (former, _devices(fresh)) if found for each in found.devices]
    gone = {each.key for each in both if each.revoked}
    known = {each.key: each.model_copy(update={"revoked": each.key in gone}) for each in both}
    merged = Devices(devices=tuple(known.values()))
    home = private_folder(home_of(fresh))
    if merged.devices:
        write_atomically(home / Path(_DEVICES).name, merged.model_dump_json(), PRIVATE)
    try:
        place = Place.read(folder)
    except DeployError:
        return
    if not place.database.startswith(SQLITE):
        with store_of(folder) as store:
            store.take_over()


def _released_since(backed_up: FederationFolder, former: FederationFolder, given: int | None) -> int:
    """Rounds whose sums were, or may have been, opened after the backup.

    0 where neither devices nor --dp count: then a round may be run again.
    """
    settings = backed_up.identity.settings
    if former.exists and former.identity.federation != backed_up.identity.federation:
        raise RunError(f"{former.path} contains another federation", "restore into another folder")
    if settings.dp is None and not settings.secure_aggregation:
        return 0
    if former.exists:
        return max(0, _releases(former) - _releases(backed_up), given or 0)
    if given is None:
        what = "--dp" if settings.dp else "--secure-aggregation"
        raise RunError(
            f"this federation has {what}, and nothing tells how many rounds ran after the backup",
            "give --lost-rounds N; solera_rounds_done in Prometheus tells the last round",
        )
    return given


def _releases(folder: FederationFolder) -> int:
    """The number of the last round that a folder's journals tell of."""
    history = [int(line["round"]) for line in folder.lines("history.jsonl")]
    return max([*history, *(number + 1 for number in folder.opened_rounds())], default=0)


def _count_as_lost(federation: FederationFolder, released: int, cohort: list[int]) -> None:
    """Enter rounds as opened, so that their numbers are not used again and their ε stays spent."""
    if not released:
        return
    known = federation.opened_rounds()
    for number in range(_releases(federation) + released):
        if number not in known:
            federation.note_opened(number, 0, cohort, restored=True)
