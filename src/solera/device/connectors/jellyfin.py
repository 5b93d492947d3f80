"""Jellyfin by its HTTP API: films and series that a user has played, favourites, and a playlist written back.

Dashboard → API keys makes the key. Paths and fields are those of Jellyfin's OpenAPI description, version 12.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from solera.core.errors import DeviceError
from solera.device.connectors.asking import Told, ids_of
from solera.device.connectors.asking import ask as request
from solera.device.importers.entry import Entry

if TYPE_CHECKING:
    from solera.device.connectors import Connection
    from solera.device.device import Device

PLAYLIST = "For you"
_PAGE = 500


def ask(_: Device, connection: Connection) -> Told:
    """What the user has played, and all films and series as the library."""
    user = _user(connection)
    items = _items(connection, user, includeItemTypes="Movie,Series", fields="ProviderIds")
    entries = [(_entry(each), each, each.get("UserData") or {}) for each in items]
    return Told(
        [entry for entry, _, data in entries if data.get("Played") or data.get("PlayedPercentage")],
        [(str(each["Id"]), entry) for entry, each, _ in entries],
        partial(_write, connection, user),
    )


def _call(connection: Connection, path: str, body: Any = None, **query: object) -> Any:
    asked = f"{path}?{urlencode(query)}" if query else path
    return request(connection.url, asked, body, {"Authorization": f'MediaBrowser Token="{connection.key}"'})


def _user(connection: Connection) -> str:
    users = {str(each["Name"]): str(each["Id"]) for each in _call(connection, "/Users")}
    wanted = connection.name or connection.user
    if wanted not in users:
        raise DeviceError(f"Jellyfin has no user {wanted!r}", f"--name one of: {', '.join(sorted(users))}")
    return users[wanted]


def _items(connection: Connection, user: str, **query: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = _call(
            connection,
            "/Items",
            userId=user,
            recursive="true",
            enableUserData="true",
            startIndex=len(found),
            limit=_PAGE,
            **query,
        )
        found += page["Items"]
        if not page["Items"] or len(found) >= page["TotalRecordCount"]:
            return found


def _entry(told: dict[str, Any]) -> Entry:
    data = told.get("UserData") or {}
    when = data.get("LastPlayedDate")
    return Entry(
        str(told["Name"]),
        told.get("ProductionYear"),
        int(datetime.fromisoformat(when).timestamp()) if when else None,
        liked=True if data.get("IsFavorite") else data.get("Likes"),
        ids=ids_of(told.get("ProviderIds")),
    )


def _write(connection: Connection, user: str, ids: list[str]) -> None:
    """Make the playlist, or fill the one that there is with other items."""
    lists = _items(connection, user, includeItemTypes="Playlist")
    there = next((each["Id"] for each in lists if each["Name"] == PLAYLIST), None)
    if there:
        _call(connection, f"/Playlists/{there}", {"Ids": ids})
    else:
        made = {"Name": PLAYLIST, "Ids": ids, "UserId": user, "MediaType": "Video", "IsPublic": False}
        _call(connection, "/Playlists", made)
