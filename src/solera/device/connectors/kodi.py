"""Kodi by JSON-RPC over HTTP: films and series with play counts, ratings and ids.

Settings → Services → Control → Allow remote control via HTTP. Kodi has one history; with several profiles,
it is that of the one in use.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime
from typing import TYPE_CHECKING, Any

from solera.core.errors import DeviceError
from solera.device.connectors.asking import Told, ids_of
from solera.device.connectors.asking import ask as request
from solera.device.importers.entry import Entry
from solera.device.importers.source import LIKE_FROM

if TYPE_CHECKING:
    from solera.device.connectors import Connection
    from solera.device.device import Device

_FIELDS = ["title", "year", "uniqueid", "playcount", "lastplayed", "userrating"]
_STARS = 2  # of Kodi's ten for one of five


def ask(_: Device, connection: Connection) -> Told:
    """Films that were played and series of which an episode was, and all of them as the library."""
    films = _call(connection, "VideoLibrary.GetMovies", _FIELDS).get("movies", [])
    series = _call(connection, "VideoLibrary.GetTVShows", [*_FIELDS, "watchedepisodes"]).get("tvshows", [])
    entries = [(_entry(each), each) for each in [*films, *series]]
    return Told(
        [entry for entry, each in entries if each.get("playcount") or each.get("watchedepisodes")],
        [(str(each.get("movieid") or each.get("tvshowid")), entry) for entry, each in entries],
    )


def _call(connection: Connection, method: str, properties: list[str]) -> Any:
    headers = {}
    if connection.name:
        pair = b64encode(f"{connection.name}:{connection.key}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"properties": properties}}
    answer = request(connection.url, "/jsonrpc", call, headers)
    if not isinstance(answer, dict) or "result" not in answer:
        raise DeviceError(f"{connection.url} is not Kodi", "check the address")
    return answer["result"]


def _entry(told: dict[str, Any]) -> Entry:
    rating = told.get("userrating") or 0
    when = told.get("lastplayed")
    return Entry(
        str(told["title"]),
        told.get("year") or None,
        int(datetime.fromisoformat(when).timestamp()) if when else None,  # in the time of this place
        liked=rating / _STARS >= LIKE_FROM if rating else None,
        ids=ids_of(told.get("uniqueid")),
    )
