"""The database of Jellyfin's Playback Reporting plug-in, which may be read while Jellyfin writes it.

`playback_reporting.db` has the table PlaybackActivity (DateCreated, UserId, ItemId, ItemType, ItemName,
PlaybackMethod, ClientName, DeviceName, PlayDuration).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from solera.core.errors import DataError
from solera.device.importers.source import Source

Play = tuple[str, str, str, str, str]  # date, user, type of item, name, seconds
_MAGIC = b"SQLite format 3\0"
_QUERY = "SELECT DateCreated, UserId, ItemType, ItemName, PlayDuration FROM PlaybackActivity ORDER BY rowid"
_LONGEST = 60.0  # seconds: a table may be a view that never ends
_STEPS = 100_000  # of SQLite's machine between two looks at the clock


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def plays_of_database(source: Source) -> Iterator[tuple[str, Play]]:
    """Where each play stands, and the play. The database is only read."""
    most, size = source.budget, source.path.stat().st_size
    if size > most.file_bytes:
        raise DataError(
            f"{source.path} has {size:,} bytes; an import reads at most {most.file_bytes:,}",
            "export a shorter period",
        )
    until = time.monotonic() + _LONGEST
    try:
        with closing(sqlite3.connect(f"file:{quote(str(source.path))}?mode=ro", uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most.line)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            for number, row in enumerate(connection.execute(_QUERY), start=1):
                source.count_row()
                date, user, type_, name, duration = ("" if field is None else str(field) for field in row)
                yield f"row {number}", (date, user, type_, name, duration)
    except sqlite3.Error as error:
        raise DataError(
            f"{source.path} cannot be read as a playback database: {error}",
            "give playback_reporting.db of Jellyfin's data folder",
        ) from None
