"""Ids of items elsewhere: in bundles, in imports and in the interface for other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the device extra")

from open_service import opened
from solera.core.errors import BundleError, DataError
from solera.device import bundle as reading
from solera.device.bundle import Bundle, Item
from solera.device.catalogue import Catalogue
from solera.device.device import Device
from solera.device.importers import import_file
from solera.device.publish import catalogue_of, export, read_items, start
from solera.device.tokens import Tokens

MATRIX = Item("1", "Matrix, The (1999)", 1999, ("Action",), {"imdb": "0133093", "tmdb": "603"})
REMAKES = [Item(str(n), f"Dune ({year})", year, (), {"tmdb": id_}) for n, year, id_ in
           ((2, 1984, "841"), (3, 2021, "438631"))]  # fmt: skip


@pytest.fixture(scope="module")
def made(trained, data, keys, tmp_path_factory) -> Bundle:
    """A bundle of films that are known elsewhere by 1000 and their number, two of them by one id."""
    items = [
        item._replace(ids={"tmdb": "1000" if row < 2 else f"{1000 + row}"})
        for row, item in enumerate(catalogue_of(data))
    ]
    path = tmp_path_factory.mktemp("ids") / "a.bundle"
    return export(trained("fedslist").path, path, Path(f"{keys}.key"), data=data, items=items)


@pytest.fixture
def me(made, tmp_path):
    device = Device.create(tmp_path / "me", made)
    yield device
    device.close()


def test_a_bundle_keeps_them_and_older_readers_refuse_it(keys, tmp_path, monkeypatch):
    bundle = start("fedease", [MATRIX, *REMAKES], tmp_path / "a.bundle", Path(f"{keys}.key"))
    assert bundle.manifest.format == 5
    assert bundle.catalogue() == [MATRIX, *REMAKES]
    monkeypatch.setattr(reading, "IDS_FORMAT", 4)
    with pytest.raises(BundleError, match="has format 5, which is newer than format 4") as refused:
        Bundle.open(bundle.path)
    assert refused.value.hint == "pip install --upgrade solera"


def test_items_are_found_by_them():
    catalogue = Catalogue([MATRIX, *REMAKES, Item("4", "Other", None, (), {"tmdb": "841"})])
    for text in ("imdb:tt0133093", "imdb:0133093", "imdb:133093", "tmdb:603", "The Matrix"):
        assert catalogue.find(text) == MATRIX
    assert catalogue.by_ids({"tmdb": "438631"}) == REMAKES[1]
    assert catalogue.by_ids({"tvdb": "603"}) is None
    assert catalogue.by_ids({"tmdb": "841"}) is None, "two items have it"
    with pytest.raises(DataError):
        catalogue.find("tmdb:1")


def test_a_publishers_file_has_them(tmp_path):
    file = tmp_path / "items.csv"
    file.write_text('id,title,year,tmdb,imdb\n1,"Matrix, The (1999)",1999,603,0133093\n2,Up,2009,,\n')
    assert [item.ids for item in read_items(file)] == [MATRIX.ids, {}]


def test_an_import_looks_for_ids_first(me, tmp_path):
    """A wrong title with a right id counts; an unknown id leaves it to title and year."""
    film = me.catalogue.items[5]
    rows = [f"Otro título,1999,{film.ids['tmdb']}", "Film 7,1967,99", "Film 8,1968,", "Nobody,1950,98"]
    file = tmp_path / "f.csv"
    file.write_text("\n".join(["name,year,tmdb", *rows]))
    report = import_file(me, "csv", file, {"title": "name", "year": "year", "tmdb": "tmdb"}, "me")
    assert (report.entries, report.matched, report.by_id) == (4, 3, 1)
    assert set(me.history()) == {film.id, *(me.find(f"Film {n}").id for n in (7, 8))}
    file.write_text(f"tmdb\n{me.catalogue.items[9].ids['tmdb']}\n97\n")
    report = import_file(me, "csv", file, {"tmdb": "tmdb"}, "me")
    assert (report.matched, report.by_id) == (1, 1)


def test_other_programs_give_them(me):
    film, token = me.catalogue.items[5], Tokens(me.store).create("player", ["add"], "me")
    given = [
        {"ids": {"tmdb": film.ids["tmdb"]}, "title": "Otro título"},
        {"title": "Film 7", "year": 1967, "ids": {"tmdb": "99"}},
        {"ids": {"tmdb": "98"}},
    ]
    with opened(me.path) as service:
        answer = service.ask("POST", "/api/v1/interactions", {"interactions": given}, token=token)
        assert answer.json == {"taken": 2, "by_id": 1, "not_found": ["tmdb:98"]}
        for wrong in ({}, {"item": "1", "ids": {"tmdb": "1"}}, {"ids": {"other": "1"}}):
            body = {"interactions": [wrong]}
            assert service.ask("POST", "/api/v1/interactions", body, token=token).status == 400
        shown = service.ask("GET", "/api/v1/recommendations?count=1").json["recommendations"]
        assert shown[0]["item"]["ids"].keys() == {"tmdb"}
