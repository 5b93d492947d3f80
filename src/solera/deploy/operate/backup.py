"""Backup and restore of a federation's folder on its server.

A backup is one compressed tar file. Its first member lists the SHA-256 of all others, so a damaged copy is
noticed before anything is replaced. Flower's own files are left out: the server makes them anew, except the
database, which knows the nodes' numbers.

Under --dp, a restored server must not release a round again that the lost server had released. Restoring
therefore counts all rounds that may have been released since the backup as lost, and their ε as spent.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

from solera import __version__
from solera.core.errors import DeployError, RunError
from solera.core.files import PRIVATE, replacing_file
from solera.deploy.common import flower
from solera.deploy.common.journal import Journal
from solera.deploy.operate import reachability
from solera.deploy.server.folder import FederationFolder

_MANIFEST = "backup.json"
_DATABASE = "flower/state.db"
_PATTERNS = ("*.json", "*.jsonl", "*.bundle", "checkpoint-*/**/*", "opening/**/*", "versions/**/*")
_JOURNALS = ("history.jsonl", "openings.jsonl")


def backup(folder: Path, output: Path, *, wait: float = 600.0) -> dict[str, Any]:
    """Write a consistent copy. A round that is under way is waited for."""
    federation = FederationFolder.open(folder)
    if output.exists():
        raise RunError(f"{output} exists already", "give another -o")
    with federation.alone(wait), tempfile.TemporaryDirectory() as scratch:
        database = _copied_database(folder, Path(scratch))
        members = {str(path.relative_to(folder)): path for path in _files(folder)}
        if database is not None:
            members[_DATABASE] = database
        about = _about(federation, members)
        try:
            with replacing_file(output, PRIVATE) as partial, tarfile.open(partial, "w:gz") as archive:
                _add(archive, _MANIFEST, json.dumps(about, indent=2).encode())
                for name, path in members.items():
                    _add(archive, name, path.read_bytes())
        except OSError as error:
            raise RunError(f"{output} cannot be written: {error.strerror}", "give another -o") from None
    return about | {"file": str(output), "bytes": output.stat().st_size}


def restore(source: Path, folder: Path, *, lost_rounds: int | None = None) -> dict[str, Any]:
    """Replace a folder by a backup. The former content is moved to FOLDER.before-restore-TIME."""
    about, members = _read(source)
    _check_stopped(folder)
    with tempfile.TemporaryDirectory(dir=folder.resolve().parent, prefix=".restore-") as scratch:
        fresh = Path(scratch) / "folder"
        fresh.mkdir(mode=0o700)
        for name, content in members.items():
            path = fresh / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(PRIVATE)
        federation = FederationFolder.open(fresh)
        released = _released_since(federation, folder, lost_rounds)
        _count_as_lost(federation, released)
        former = None
        if folder.exists():
            former = folder.with_name(f"{folder.name}.before-restore-{int(time.time())}")
            with FederationFolder(folder).alone(0):  # not while a run is under way
                folder.rename(former)
        shutil.move(fresh, folder)
    return about | {"folder": str(folder), "former": former and str(former), "lost_rounds": released}


def _check_stopped(folder: Path) -> None:
    """Refuse to replace the folder of a server that runs."""
    try:
        reachability.check(flower.read_address(folder))
    except DeployError:
        return
    raise RunError(f"the server of {folder} is running", "stop it, restore, then start it again")


def _files(folder: Path) -> Iterator[Path]:
    for pattern in _PATTERNS:
        yield from sorted(path for path in folder.glob(pattern) if path.is_file())


def _copied_database(folder: Path, scratch: Path) -> Path | None:
    """A consistent copy of the SuperLink's database, also while it runs."""
    source = folder / _DATABASE
    if not source.exists():
        return None
    copy = scratch / "state.db"
    with (
        closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as here,
        closing(sqlite3.connect(copy)) as there,
    ):
        here.backup(there)
    return copy


def _about(federation: FederationFolder, members: dict[str, Path]) -> dict[str, Any]:
    return {
        "solera": __version__,
        "federation": federation.identity.federation,
        "time": round(time.time(), 3),
        "rounds_done": federation.progress.rounds_done,
        "sha256": {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in members.items()},
    }


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), PRIVATE, int(time.time())
    archive.addfile(member, io.BytesIO(content))


def _read(source: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and all files, if every one is as it was written."""
    again = "use another backup"
    try:
        with tarfile.open(source, "r:gz") as archive:
            found = {
                member.name: file.read()
                for member in archive
                if member.isfile() and (file := archive.extractfile(member)) is not None
            }
        about = json.loads(found.pop(_MANIFEST))
        digests: dict[str, str] = about["sha256"]
    except (OSError, EOFError, tarfile.TarError, KeyError, ValueError) as error:
        raise RunError(f"{source} is not a backup, or is damaged: {error}", again) from None
    wrong = [name for name in digests.keys() | found.keys() if _digest(found.get(name)) != digests.get(name)]
    outside = [
        name for name in found if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts
    ]
    if wrong or outside:
        raise RunError(f"{source} is damaged: {', '.join(sorted(wrong + outside)[:3])}", again)
    return about, found


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _released_since(backed_up: FederationFolder, folder: Path, given: int | None) -> int:
    """Rounds that were, or may have been, released after the backup; 0 without --dp."""
    if backed_up.identity.settings.dp is None:
        return 0
    here = _releases(folder)
    if here is not None and FederationFolder(folder).exists:
        if FederationFolder(folder).identity.federation != backed_up.identity.federation:
            raise RunError(f"{folder} contains another federation", "restore into another folder")
        return max(0, here - (_releases(backed_up.path) or 0), given or 0)
    if given is None:
        raise RunError(
            "this federation has --dp, and nothing tells how many rounds ran after the backup",
            "give --lost-rounds N; solera_rounds_done in Prometheus tells the last round",
        )
    return given


def _releases(folder: Path) -> int | None:
    """The number of the last round that a folder's journals tell of; None if there are none."""
    if not any((folder / name).exists() for name in _JOURNALS):
        return 0 if FederationFolder(folder).exists else None
    history = [int(line["round"]) for line in Journal(folder / "history.jsonl").lines()]
    opened = [number + 1 for number in FederationFolder(folder).opened_rounds()]
    return max([*history, *opened], default=0)


def _count_as_lost(federation: FederationFolder, released: int) -> None:
    """Enter rounds as opened, so that their numbers are not used again and their ε stays spent."""
    if not released:
        return
    done = _releases(federation.path) or 0
    journal, known = Journal(federation.path / "openings.jsonl"), federation.opened_rounds()
    for number in range(done + released):
        if number not in known:
            line = {"round": number, "attempt": 0, "time": round(time.time(), 3), "restored": True}
            journal.append(line, sync=True)
