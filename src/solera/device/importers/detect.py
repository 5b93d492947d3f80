"""Which of the formats a file has, by its name and its first bytes."""

from __future__ import annotations

import zipfile
from pathlib import Path

from solera.core.errors import DataError
from solera.device.importers.jellyfin import COLUMNS
from solera.device.importers.playback import is_database

_FIRST = 1 << 16  # bytes that are looked at
_ZIP = b"PK\x03\x04"


def format_of(path: Path) -> str:
    """The format that `import_file` takes: what is nothing else is a CSV file."""
    try:
        with path.open("rb") as file:
            start = file.read(_FIRST)
        if is_database(path):
            return "jellyfin"
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "check the path") from None
    if start.startswith(_ZIP):
        return "listenbrainz" if _has_listens(path) else "letterboxd"
    if path.suffix.lower() in (".json", ".jsonl") or start.lstrip()[:1] in (b"{", b"["):
        return "listenbrainz"
    line = start.decode("utf-8-sig", "replace").split("\n", maxsplit=1)[0]
    if len(line.split("\t")) == COLUMNS:
        return "jellyfin"
    return "letterboxd" if "Letterboxd URI" in line else "csv"


def _has_listens(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.startswith("listens/") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        return False  # then the reader says what is wrong with it
