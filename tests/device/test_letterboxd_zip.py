"""Letterboxd's zip as it is handed out: what counts as seen and liked, and what becomes of every row."""

from __future__ import annotations

import pytest
from letterboxd_export import FILES, zipped

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import ConfigError, DataError
from solera.device.aliases import Aliases
from solera.device.importers import as_json, import_file, near_of_year
from solera.device.importers.source import Source

DAY = 86_400
JANUARY, MARCH, APRIL = 1672531200, 1677628800, 1680307200  # the first of each in 2023


def test_a_whole_export(device, tmp_path):
    """Film 2 twice from the diary, the others once; film 3 is rated too low, film 4 has a heart."""
    report = import_file(device, "letterboxd", zipped(tmp_path / "letterboxd-ann.zip"), {}, "me")
    entries = device.entries.entries("me")
    assert [(each.item, each.time, each.counts) for each in entries] == [
        ("1", JANUARY, True),
        ("3", JANUARY + 2 * DAY, False),
        ("4", JANUARY + 3 * DAY, True),
        ("2", MARCH, True),
        ("2", APRIL, True),
    ]
    assert device.history() == ["1", "4", "2"]
    assert report.used == {"watched.csv": 7, "ratings.csv": 3, "diary.csv": 2, "likes/films.csv": 1}
    assert {"watchlist.csv", "deleted/diary.csv", "lists/best.csv"} <= set(report.unused)
    assert (report.entries, report.matched, report.items, report.added) == (7, 5, 4, 5)
    assert (report.seen_only, report.unknown, report.like_from) == (1, 2, 3.5)
    assert report.left_out == {"bad row": 1, "the same film in another file of the export": 5}
    assert report.faults == ["watched.csv, line 8: Invalid isoformat string: 'soon'"]
    assert report.entries + sum(report.left_out.values()) == sum(report.used.values())  # every row
    again = import_file(device, "letterboxd", tmp_path / "letterboxd-ann.zip", {}, "me", like_from=0.5)
    assert (again.added, again.known) == (0, 5)
    assert device.history() == ["1", "3", "4", "2"]  # film 3 is liked by the lower threshold


def test_a_threshold_above_all_ratings(device, tmp_path):
    with pytest.raises(ConfigError, match="the highest is 5"):
        import_file(device, "letterboxd", zipped(tmp_path / "a.zip"), {}, "me", like_from=7)


def test_seen_only_is_never_recommended(device, tmp_path):
    import_file(device, "letterboxd", zipped(tmp_path / "a.zip"), {}, "me")
    found = device.recommend(40, reasons=40)
    assert len(found) == 40 - 4
    assert {"1", "2", "3", "4"} & {one.item for one in found} == set()
    assert "3" not in {reason.item for one in found for reason in one.reasons}


def test_a_folder_of_its_own_in_the_zip_or_unpacked(device, tmp_path):
    inside = zipped(tmp_path / "a.zip", inside="letterboxd-ann-2024/")
    assert import_file(device, "letterboxd", inside, {}, "a").added == 5
    for name, text in FILES.items():
        (tmp_path / "export" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "export" / name).write_text(text)
    report = import_file(device, "letterboxd", tmp_path / "export", {}, "b")
    assert (report.added, report.used["diary.csv"]) == (5, 2)
    assert device.entries.items("a") == device.entries.items("b")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"watchlist.csv": FILES["watchlist.csv"]}, "none of the files watched.csv, ratings.csv"),
        ({"watched.csv": "hello\n"}, "the first line of watched.csv, 'hello', is not the header"),
        ({"watched.csv": "Date,Name,Year\n"}, "no row that can be used: it is empty"),
        ({"watched.csv": "Date,Name,Year\nsoon,A,1\n"}, "no row that can be used: watched.csv, line 2"),
        (
            {"ratings.csv": "Date,Name,Year,Rating\n2023-01-01,A,1,nan\n"},
            "'nan' is not a rating from 0 to 100",
        ),
    ],
)
def test_what_is_no_export(device, tmp_path, files, said):
    with pytest.raises(DataError) as error:
        import_file(device, "letterboxd", zipped(tmp_path / "a.zip", files), {}, "me")
    assert said in error.value.message
    assert error.value.hint


def test_films_are_limited(device, tmp_path):
    from dataclasses import replace

    from solera.device.importers import read_entries
    from solera.device.importers.source import DEFAULT

    source = Source(zipped(tmp_path / "a.zip"), replace(DEFAULT, films=5))
    with pytest.raises(DataError, match="more than 5 films"):
        list(read_entries("letterboxd", source, {}))


def test_near_titles_are_accepted_and_remembered(device, tmp_path):
    path = zipped(tmp_path / "a.zip")
    first = import_file(device, "letterboxd", path, {}, "me", accept=near_of_year)
    assert first.accepted == {"Fim 5": "Film 5 (1965)"}
    assert [each.title for each in first.unmatched] == ["Oppenheimer"]
    assert "5" in device.history()
    assert Aliases(device.store, "me").listed() == [("Fim 5", 1965, "5")]
    again = import_file(device, "letterboxd", path, {}, "me")
    assert (again.matched, again.added, again.accepted) == (6, 0, {})
    assert as_json(again)["known"] == 6
    assert device.find("Fim 5 (1965)").id == "5"
    assert import_file(device, "letterboxd", path, {}, "you").matched == 5  # matches are the user's own
    device.forget(user="me")
    assert device.store.rows("SELECT * FROM aliases") == []


def test_a_near_title_of_another_year_is_not_accepted(device, tmp_path):
    path = tmp_path / "seen.csv"
    path.write_text("Film,Made\nFilm 1,1961\nFim 5,1999\nFim 7,\n")
    columns = {"title": "Film", "year": "Made"}
    report = import_file(device, "csv", path, columns, "me", accept=near_of_year)
    assert (report.matched, report.accepted) == (1, {})
    assert [bool(each.near) for each in report.unmatched] == [False, True]  # to be asked about


def test_a_table_with_ratings(device, tmp_path):
    path = tmp_path / "seen.csv"
    path.write_text("Film,Stars\nFilm 1,4\nFilm 2,7\nFilm 3,\nFilm 4,2\nFilm 5,x\nFilm 4,2\n")
    columns = {"title": "Film", "rating": "Stars"}
    with pytest.raises(DataError, match="the rating 7 is not one of 5 stars") as error:
        import_file(device, "csv", path, columns, "me")
    assert "--like-from" in error.value.hint
    report = import_file(device, "csv", path, columns, "me", like_from=7)
    assert device.history() == ["2", "3"]
    assert (report.seen_only, report.repeated, report.left_out) == (2, 1, {"bad row": 1})
