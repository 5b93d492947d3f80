"""Media servers in the home: what a person has watched or heard, and what they own, asked for now and then.

A device asks the address that its owner has given and nobody else: it must be one of the home's network, and
neither proxies nor redirections are followed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pydantic import Field

from solera.core.errors import DeviceError, SoleraError
from solera.core.frozen import Frozen
from solera.device.choices import Choices
from solera.device.connectors import jellyfin, kodi, mpd
from solera.device.connectors.asking import Told, checked
from solera.device.device import Device
from solera.device.importers import import_entries, row_of
from solera.device.importers.entry import cleaned
from solera.device.importers.source import Source

Kind = Literal["kodi", "jellyfin", "mpd"]
KINDS: tuple[str, ...] = get_args(Kind)
EVERY = {"kodi": 600, "jellyfin": 600, "mpd": 20}  # seconds between two questions; mpd keeps no history
_SETTING = "connections"
_PLAYLIST = 30  # items of a playlist that is written back


class Connection(Frozen):
    """A media server, and the person on this device whose history it has."""

    kind: Kind
    url: str
    user: str
    key: str = Field(default="", repr=False)
    name: str = ""  # of the person there


class Synced(NamedTuple):
    """What a question brought: entries that were new, those not in the catalogue, and items owned."""

    source: str
    user: str
    added: int
    unknown: int
    owned: int
    error: str = ""


def listed(device: Device) -> list[Connection]:
    """All connections of a device, oldest first."""
    held = json.loads(device.store.settings().get(_SETTING, "[]"))
    return [Connection.model_validate(each) for each in held]


def connect(device: Device, new: Connection) -> Synced:
    """Ask a server for the first time, and keep the connection if it answers."""
    checked(new.url)
    told = sync(device, new)
    others = [each for each in listed(device) if (each.kind, each.user) != (new.kind, new.user)]
    _keep(device, [*others, new])
    return told


def disconnect(device: Device, kind: str, user: str) -> None:
    """Forget a connection. What it brought stays in the history."""
    held = listed(device)
    left = [each for each in held if (each.kind, each.user) != (kind, user)]
    if len(left) == len(held):
        raise DeviceError(f"{user!r} has no connection to {kind}", "solera device connect DIR lists them")
    _keep(device, left)
    Choices(device.store, user).replace_listed([], kind)


def sync(device: Device, connection: Connection) -> Synced:
    """Ask a server, add what is new, and take its library for the items that the person owns."""
    told = _ask(device, connection)
    source, user = Source(Path(connection.url)), connection.user
    history = cleaned(source, iter(told.history))
    report = import_entries(device, connection.kind, source, history, user)
    owned: dict[str, str] = {}
    for id_, entry in told.library:
        if (row := row_of(device.catalogue, device.catalogue.match, entry)) is not None:
            owned.setdefault(device.catalogue.items[row].id, id_)
    Choices(device.store, user).replace_listed(owned, connection.kind)
    if told.write is not None and owned and device.has_history(user):
        best = device.recommend(_PLAYLIST, user=user, allowed=lambda item: item.id in owned)
        told.write([owned[one.item] for one in best])
    return Synced(connection.kind, user, report.added, report.unknown, len(owned))


def sync_due(device: Device, last: dict[Connection, float]) -> list[Synced]:
    """Ask those servers whose time has come, and tell errors instead of raising them.

    `last` has when each was asked.
    """
    done = []
    for each in listed(device):
        if time.monotonic() - last.get(each, -float("inf")) >= EVERY[each.kind]:
            last[each] = time.monotonic()
            try:
                done.append(sync(device, each))
            except SoleraError as error:
                done.append(Synced(each.kind, each.user, 0, 0, 0, error.message))
    return done


def _ask(device: Device, connection: Connection) -> Told:
    asks: dict[str, Callable[[Device, Any], Told]] = {
        "kodi": kodi.ask,
        "jellyfin": jellyfin.ask,
        "mpd": mpd.ask,
    }
    return asks[connection.kind](device, connection)


def _keep(device: Device, connections: list[Connection]) -> None:
    device.store.set(_SETTING, json.dumps([each.model_dump() for each in connections]))
