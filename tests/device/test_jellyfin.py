"""Jellyfin's connector, against a server made from the published description of its API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_jellyfin import KEY, Jellyfin, serving
from made_movielens import write_movielens

from open_service import opened
from solera.core.errors import DeviceError
from solera.device import connectors
from solera.device.bundle import Bundle
from solera.device.choices import Choices
from solera.device.connectors import Connection
from solera.device.device import Device
from solera.device.making import make


@pytest.fixture(scope="module")
def bundle(keys, tmp_path_factory) -> Bundle:
    root = tmp_path_factory.mktemp("films")
    write_movielens(root / "ml-latest")
    return make("ml-latest", root / "films.bundle", Path(f"{keys}.key"), data_dir=root)[0]


@pytest.fixture
def home(bundle, tmp_path) -> Iterator[tuple[Jellyfin, Device]]:
    """A server with 20 films of the catalogue under other titles, and one that it does not have."""
    films = [
        {
            "Name": f"Film {n}",
            "ProductionYear": item.year,
            "ProviderIds": {"Tmdb": item.ids["tmdb"], "X": "y"},
        }
        for n, item in enumerate(bundle.catalogue()[19:])
        if "tmdb" in item.ids
    ][:20]
    device = Device.create(tmp_path / "me", bundle)
    with serving(Jellyfin([*films, {"Name": "Holiday 2024", "ProviderIds": {}}])) as jellyfin:
        yield jellyfin, device
    device.close()


def connection(jellyfin: Jellyfin, user: str = "anna", name: str = "Anna", key: str = KEY) -> Connection:
    return Connection(kind="jellyfin", url=jellyfin.url, user=user, name=name, key=key)


def film(device: Device, jellyfin: Jellyfin, number: int) -> str:
    item = device.catalogue.by_ids({"tmdb": jellyfin.films[number]["ProviderIds"]["Tmdb"]})
    assert item
    return item.id


def test_each_person_has_a_history_a_library_and_a_playlist(home):
    jellyfin, device = home
    jellyfin.watched("Anna", 3, "2024-11-02T20:00:00.0000000Z", IsFavorite=True)
    jellyfin.watched("Anna", 4, "2024-11-01T20:00:00Z")
    jellyfin.watched("Anna", 20, "2024-11-03T20:00:00Z")  # not in the catalogue
    jellyfin.watched("Ben", 7, "2024-10-01T20:00:00Z", Likes=False)
    jellyfin.watched("Ben", 8, "2024-10-01T20:00:00Z")
    told = connectors.connect(device, connection(jellyfin))
    assert told == ("jellyfin", "anna", 2, 1, 20, "")
    connectors.connect(device, connection(jellyfin, "ben", "Ben"))
    assert device.history("anna") == [film(device, jellyfin, 4), film(device, jellyfin, 3)]
    assert device.history("ben") == [film(device, jellyfin, 8)], "7 is seen only"
    assert len(Choices(device.store, "anna").listed()) == 20
    lists = {each["UserId"]: each for each in jellyfin.lists.values()}
    assert set(lists) == set(jellyfin.users.values())
    anna = lists[jellyfin.users["Anna"]]
    assert anna["Name"] == "For you"
    assert not anna["IsPublic"]
    assert anna["Ids"]
    assert set(anna["Ids"]) <= {each["Id"] for each in jellyfin.films} - {
        jellyfin.films[n]["Id"] for n in (3, 4)
    }
    assert anna["Ids"] != lists[jellyfin.users["Ben"]]["Ids"]


def test_a_film_that_is_watched_changes_the_playlist(home):
    jellyfin, device = home
    jellyfin.watched("Anna", 3, "2024-11-02T20:00:00Z")
    connectors.connect(device, connection(jellyfin))
    (before,) = (each["Ids"] for each in jellyfin.lists.values())
    connectors.sync(device, connection(jellyfin))
    assert [each["Ids"] for each in jellyfin.lists.values()] == [before], "the control"
    jellyfin.watched("Anna", 5, "2024-11-09T20:00:00Z")
    with opened(device.path):  # a service asks by itself
        end = time.monotonic() + 60
        while device.history("anna") != [film(device, jellyfin, n) for n in (3, 5)]:
            assert time.monotonic() < end
            time.sleep(0.3)
        while (now := next(iter(jellyfin.lists.values()))["Ids"]) == before:
            assert time.monotonic() < end
            time.sleep(0.3)
    assert jellyfin.films[5]["Id"] not in now
    assert len(jellyfin.lists) == 1


@pytest.mark.parametrize(("change", "said"), [
    ({"key": "wrong"}, "refuses the key"),
    ({"name": "Carl"}, "no user 'Carl'"),
])  # fmt: skip
def test_a_connection_that_does_not_work_is_not_kept(home, change, said):
    jellyfin, device = home
    with pytest.raises(DeviceError, match=said):
        connectors.connect(device, connection(jellyfin, **change))
    assert connectors.listed(device) == []


def test_a_connection_can_be_forgotten(home):
    jellyfin, device = home
    jellyfin.watched("Anna", 3, "2024-11-02T20:00:00Z")
    connectors.connect(device, connection(jellyfin))
    assert KEY not in repr(connectors.listed(device))
    connectors.disconnect(device, "jellyfin", "anna")
    assert connectors.sync_due(device, {}) == []
    assert Choices(device.store, "anna").listed() == []
    assert device.history("anna"), "what it brought stays"
    with pytest.raises(DeviceError, match="no connection"):
        connectors.disconnect(device, "jellyfin", "anna")
