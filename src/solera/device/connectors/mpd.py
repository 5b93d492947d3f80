"""MPD by its protocol: the artist of what plays, and the artists of the library.

MPD keeps no history. A device that is asked to refresh looks at what plays, and takes a track that has played
for half a minute. The address is mpd://HOST:6600.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from solera.core.errors import DeviceError
from solera.device.connectors.asking import Told, checked
from solera.device.importers.entry import Entry

if TYPE_CHECKING:
    from solera.device.connectors import Connection
    from solera.device.device import Device

_SECONDS = 10.0
_HEARD = 30.0  # seconds that count as having heard a track
_LINES = 2_000_000
_LAST = "mpd_last"  # the setting that names the last track that was taken, and when it began
_SLACK = 15  # seconds in which the beginning of one play may be counted differently


def ask(device: Device, connection: Connection) -> Told:
    """The artist of the track that plays, if it has played for long enough, and all artists."""
    with _opened(connection) as said:
        status, song = dict(_call(said, "status")), dict(_call(said, "currentsong"))
        artists = [("", each) for each in _artists(_call(said, "list MUSICBRAINZ_ARTISTID group Artist"))]
    return Told(_heard(device, connection, status, song), artists)


def _heard(
    device: Device, connection: Connection, status: dict[str, str], song: dict[str, str]
) -> list[Entry]:
    played = float(status.get("elapsed", 0))
    if status.get("state") != "play" or played < _HEARD or "Artist" not in song:
        return []
    begun = int(time.time() - played)
    setting = f"{_LAST} {connection.user}"
    file, when = json.loads(device.store.settings().get(setting, '["", 0]'))
    if file == song["file"] and abs(begun - when) < _SLACK:
        return []
    device.store.set(setting, json.dumps([song["file"], begun]))
    return [_entry(song["Artist"], song.get("MUSICBRAINZ_ARTISTID", ""))._replace(time=begun)]


def _artists(lines: Iterator[tuple[str, str]]) -> Iterator[Entry]:
    name = ""
    for field, value in lines:
        if field == "Artist":
            name = value
        elif name:
            yield _entry(name, value)


def _entry(name: str, id_: str) -> Entry:
    return Entry(name, ids={"musicbrainz": id_} if id_ else {})


@contextmanager
def _opened(connection: Connection) -> Iterator[TextIO]:
    _, address, port = checked(connection.url)
    try:
        with (
            socket.create_connection((address, port), _SECONDS) as opened,
            opened.makefile("rw", encoding="utf-8", newline="\n") as said,
        ):
            if not said.readline().startswith("OK MPD"):
                raise DeviceError(f"{connection.url} is not MPD", "check the address")
            if connection.key:
                list(_call(said, f"password {json.dumps(connection.key)}"))
            yield said
    except (OSError, UnicodeDecodeError) as error:
        hint = "check that it runs, and its address"
        raise DeviceError(f"{connection.url} does not answer: {error}", hint) from None


def _call(said: TextIO, command: str) -> Iterator[tuple[str, str]]:
    said.write(f"{command}\n")
    said.flush()
    for _ in range(_LINES):
        line = said.readline().rstrip("\n")
        if line == "OK":
            return
        field, colon, value = line.partition(": ")
        if not colon or line.startswith("ACK"):
            raise DeviceError(
                f"MPD does not do {command.partition(' ')[0]}: {line[:100]}", "check the password"
            )
        yield field, value
    raise DeviceError("MPD does not end its answer", "check the address")
