"""Jellyfin: the backup that the Playback Reporting plug-in writes (Settings → Backup → Save).

Tab-separated, without a header: DateCreated, UserId, ItemId, ItemType, ItemName, PlaybackMethod, ClientName,
DeviceName, PlayDuration in seconds. An episode's name is "Series - s01e02 - Title" and counts for the series,
a track's is "Artist - Title (Album)" and counts for the artist. What was played for a short while is left
out. Times are taken as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from solera.core.errors import DataError
from solera.device.importers.entry import Entry, malformed, only, seconds

LEAST = {"Movie": 300, "Episode": 300, "Audio": 30}  # seconds of play that count
_EPISODE = re.compile(r" - s\d+e\d+ - ")
_COLUMNS = 9


def read_jellyfin(path: Path, options: Mapping[str, str]) -> list[Entry]:
    """One entry per play; of a server with several users, `user` names the one that is meant."""
    only(options, ("user",), "jellyfin")
    entries, users = [], set()
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) != _COLUMNS:
                raise malformed(path, number, f"{len(fields)} columns instead of {_COLUMNS}")
            date, user, _, type_, name, *_, duration = fields
            users.add(user)
            try:
                time, played = seconds(date[:19]), int(duration or 0)
            except ValueError as error:
                raise malformed(path, number, str(error)) from None
            if user == options.get("user", user) and played >= LEAST.get(type_, played + 1):
                entries.append(Entry(_title(type_, name), None, time))
    if "user" not in options and len(users) > 1:
        hint = f"give one of them: --columns user={min(users)}"
        raise DataError(f"{path} holds the plays of {len(users)} users: {', '.join(sorted(users))}", hint)
    if "user" in options and options["user"] not in users:
        raise DataError(
            f"{path} holds no plays of user {options['user']!r}", f"it has {', '.join(sorted(users))}"
        )
    return entries


def _title(type_: str, name: str) -> str:
    if type_ == "Episode":
        return _EPISODE.split(name)[0]
    return name.split(" - ", maxsplit=1)[0] if type_ == "Audio" else name
