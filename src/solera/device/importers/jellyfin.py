"""Jellyfin: what the Playback Reporting plug-in keeps: its backup (Settings → Backup → Save) or its database.

The backup is tab-separated, without a header: DateCreated, UserId, ItemId, ItemType, ItemName,
PlaybackMethod, ClientName, DeviceName, PlayDuration in seconds. An episode's name is "Series - s01e02 -
Title" and counts for the series, a track's is "Artist - Title (Album)" and counts for the artist. What was
played for less than five minutes, or a track for less than half a minute, is left out. Times are in UTC.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from solera.core.errors import DataError
from solera.core.text import clean_text
from solera.device.importers.entry import Entry, only, seconds, whole
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


LEAST = {"Movie": 300, "Episode": 300, "Audio": 30}  # seconds of play that count
_EPISODE = re.compile(r" - s\d+e\d+ - ")
COLUMNS = 9
_SHOWN = 10  # users that an error names


def read_jellyfin(source: Source, options: Mapping[str, str]) -> Iterator[Entry]:
    """One entry per play; of a server with several users, `user` names the one that is meant."""
    only(options, ("user",), "jellyfin")
    meant, users = options.get("user"), set[str]()
    plays = plays_of_database(source) if is_database(source.path) else _plays_of_backup(source)
    for where, (date, user_id, type_, name, duration) in plays:
        user = _known(source, where, user_id, users)
        try:
            time, played = seconds(date[:19]), whole(duration or "0")
        except ValueError as error:
            source.bad(where, str(error))
            continue
        if meant not in (None, user):
            source.left_out["played by another user"] += 1
            continue
        if type_ not in LEAST:
            source.left_out["neither a film, an episode nor a track"] += 1
        elif played < LEAST[type_]:
            source.left_out[f"played for less than {LEAST[type_]} s"] += 1
        else:
            yield Entry(_title(type_, name), None, time)
    _check(source, meant, users)


def _plays_of_backup(source: Source) -> Iterator[tuple[str, Play]]:
    with source.text() as text:
        for where, line in source.lines(text):
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) != COLUMNS:
                source.bad(where, f"{len(fields)} columns instead of {COLUMNS}")
                continue
            date, user, _, type_, name, *_, duration = fields
            yield where, (date, user, type_, name, duration)


def _known(source: Source, where: str, user: str, users: set[str]) -> str:
    most = source.budget
    if len(user) > most.name:
        raise source.malformed(where, f"a user's id of more than {most.name} characters")
    user = clean_text(user)
    users.add(user)
    if len(users) > most.users:
        message = f"{source.path} holds the plays of more than {most.users:,} users, the most that are read"
        raise DataError(message, "give the backup of one server")
    return user


def _check(source: Source, meant: str | None, users: set[str]) -> None:
    shown = ", ".join(sorted(users)[:_SHOWN]) + (", …" if len(users) > _SHOWN else "")
    if meant is None and len(users) > 1:
        hint = f"give one of them: --columns user={min(users)}"
        raise DataError(f"{source.path} holds the plays of {len(users)} users: {shown}", hint)
    if meant is not None and meant not in users:
        raise DataError(f"{source.path} holds no plays of user {meant!r}", f"it has {shown}")


def _title(type_: str, name: str) -> str:
    if type_ == "Episode":
        return _EPISODE.split(name)[0]
    return name.split(" - ", maxsplit=1)[0] if type_ == "Audio" else name
