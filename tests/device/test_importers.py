"""Files in the publishers' own formats, matched against a catalogue, reported and never added twice."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import ConfigError, DataError
from solera.device.bundle import Item
from solera.device.catalogue import Catalogue, plain, split_year, titles_in
from solera.device.importers import import_file, read_entries
from solera.device.importers.entry import Entry, seconds
from solera.device.importers.source import Source

MOVIES = Catalogue(
    [
        Item("1", "Matrix, The (1999)", 1999),
        Item("2", "Seven (a.k.a. Se7en) (1995)", 1995),
        Item("3", "City of Lost Children, The (La Cité des enfants perdus) (1995)", 1995),
        Item("4", "Hamlet (1990)", 1990),
        Item("5", "Hamlet (1996)", 1996),
        Item("6", "Hate (Haine, La) (1995)", 1995),
        Item("7", "Amélie", None),
        Item("8", "Wallace & Gromit: A Close Shave (1995)", 1995),
        Item("9", "Sliding Doors (1998)", 1998),
        Item("10", "Sliding Doors (1998)", 1998),
        Item("11", "$ (1971)", 1971),
        Item("12", "2001: A Space Odyssey (1968)", 1968),
    ]
)


@pytest.mark.parametrize(
    ("title", "year", "item"),
    [
        ("The Matrix", 1999, "1"),
        ("the  matrix!", None, "1"),
        ("Matrix, The (1999)", None, "1"),
        ("The Matrix", 2000, "1"),
        ("The Matrix", 2001, None),
        ("Matrix", 1999, None),
        ("Se7en", 1995, "2"),
        ("Seven", 1995, "2"),
        ("La cite des Enfants perdus", 1995, "3"),
        ("The City of Lost Children", 1996, "3"),
        ("Hamlet", 1990, "4"),
        ("Hamlet", 1997, "5"),
        ("Hamlet", None, None),
        ("La Haine", 1995, "6"),
        ("Amelie", 2001, "7"),
        ("Wallace and Gromit: A Close Shave", 1995, "8"),
        ("Sliding Doors", 1998, "9"),
        ("$", 1971, "11"),
        ("2001: A Space Odyssey", 1968, "12"),
        ("2001 - a space odyssey", None, "12"),
        ("", None, None),
    ],
)
def test_titles_are_matched(title, year, item):
    found = MOVIES.match(title, year)
    assert (found and found.id) == item


def test_titles_in_plain_words():
    assert plain("Œuvre au noir, L'") == plain("L’œuvre au noir") == "loeuvre au noir"
    assert plain("Straße") == plain("STRASSE")
    assert plain("Smørrebrød") == "smorrebrod"
    assert split_year("Toy Story (1995)") == ("Toy Story", 1995)
    assert titles_in("Hate (Haine, La) (1995)") == ["hate haine la", "hate", "la haine"]


def titles_near(title: str, year: int | None = None) -> list[str]:
    return [item.title for item in MOVIES.near(title, year)]


def test_what_may_have_been_meant():
    assert titles_near("Matrix") == ["Matrix, The (1999)"]
    assert titles_near("Matrix", 2000) == ["Matrix, The (1999)"]
    assert titles_near("Matrix", 2021) == []
    assert titles_near("Matrix (2021)") == []
    assert titles_near("The Matrix", 2021) == ["Matrix, The (1999)"]  # the same title is always one
    assert titles_near("Hamlet") == ["Hamlet (1990)", "Hamlet (1996)"]
    assert titles_near("Hamlet", 1996)[0] == "Hamlet (1996)"
    assert titles_near("xyzzy") == []
    with pytest.raises(DataError, match="no item 'Hamlet'") as error:
        MOVIES.find("Hamlet")
    assert "Hamlet (1996)" in error.value.hint
    assert MOVIES.find("5").title == "Hamlet (1996)"
    assert MOVIES.find("Hamlet (1996)").id == "5"


def read(format_: str, path: Path, text: str, **options: str) -> list[Entry]:
    path.write_text(text, encoding="utf-8")
    return list(read_entries(format_, Source(path), options))


def test_letterboxd(tmp_path):
    watched = (
        "Date,Name,Year,Letterboxd URI\n"
        "2023-01-15,The Matrix,1999,https://boxd.it/2a1m\n"
        '2023-02-10,"Good, the Bad and the Ugly, The",1966,https://boxd.it/2aeM\n'
        "2023-02-11,Untitled,,https://boxd.it/xyz\n"
    )
    assert read("letterboxd", tmp_path / "watched.csv", watched) == [
        Entry("The Matrix", 1999, 1673740800),
        Entry("Good, the Bad and the Ugly, The", 1966, 1675987200),
        Entry("Untitled", None, 1676073600),
    ]
    diary = (
        "\ufeffDate,Name,Year,Letterboxd URI,Rating,Rewatch,Tags,Watched Date\n"
        "2023-01-20,The Matrix,1999,https://boxd.it/1,4.5,Yes,,2023-01-15\n"
    )
    assert read("letterboxd", tmp_path / "diary.csv", diary) == [
        Entry("The Matrix", 1999, 1673740800, liked=True)
    ]
    ratings = "Date,Name,Year,Letterboxd URI,Rating\n" + "".join(
        f"2023-01-15,The Matrix,1999,https://boxd.it/1,{rating}\n" for rating in ("3.5", "3", "0.5", "")
    )
    read_ratings = read("letterboxd", tmp_path / "ratings.csv", ratings)
    assert [each.liked for each in read_ratings] == [True, False, False, None]
    with pytest.raises(DataError, match="not watched yet"):
        read("letterboxd", tmp_path / "watchlist.csv", watched)
    for wrong, said in (
        ("a,b\n1,2\n", "not the header"),
        ("Date,Name,Year\nsoon,A,1999\n", "line 2"),
        ("Date,Name,Year\n2023-01-15,A,MCM\n", "line 2"),
        ("Date,Name,Year\n2023-01-15,,1999\n", "no name"),
    ):
        with pytest.raises(DataError, match=said):
            read("letterboxd", tmp_path / "wrong.csv", wrong)


LISTENS = [
    {
        "listened_at": 1700000300,
        "inserted_at": 1700000301.5,
        "track_metadata": {
            "artist_name": "Gorillaz feat. De La Soul",
            "track_name": "Feel Good Inc.",
            "recording_msid": "0f53fa2f-f015-40c6-a5cd-f17af596764c",
            "mbid_mapping": {
                "recording_mbid": "30a5a2bd-a3f1-4b0e-bb6c-a2fd5e1a6b8a",
                "artists": [
                    {"artist_credit_name": "Gorillaz", "join_phrase": " feat. ", "artist_mbid": "e21857d5"},
                    {"artist_credit_name": "De La Soul", "join_phrase": "", "artist_mbid": "a8e43e41"},
                ],
            },
        },
    },
    {"listened_at": 1600000000.0, "track_metadata": {"artist_name": "The Beatles", "mbid_mapping": None}},
]


def test_listenbrainz(tmp_path):
    expected = [
        Entry("Gorillaz feat. De La Soul", None, 1700000300, None, ("Gorillaz", "De La Soul")),
        Entry("The Beatles", None, 1600000000),
    ]
    lines = "".join(json.dumps(listen) + "\n" for listen in LISTENS)
    assert read("listenbrainz", tmp_path / "7.jsonl", lines) == expected
    assert read("listenbrainz", tmp_path / "listens.json", json.dumps(LISTENS)) == expected
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("user.json", '{"user_id": 1, "username": "me"}\n')
        archive.writestr("listens/2023/11.jsonl", lines)
        archive.writestr("feedback.jsonl", '{"score": 1}\n')
    assert list(read_entries("listenbrainz", Source(tmp_path / "export.zip"), {})) == expected
    endless = '{"listened_at": 1e999, "track_metadata": {"artist_name": "x"}}'
    for wrong in (
        endless,
        "{\n",
        "[1]\n",
        '{"listened_at": 3}\n',
        '{"listened_at": "x", "track_metadata": {}}\n',
    ):
        with pytest.raises(DataError, match="line 1"):
            read("listenbrainz", tmp_path / "wrong.jsonl", wrong)


PLAYS = (
    "2024-03-01 20:15:00.1234567\taa11\tf00\tMovie\tThe Matrix\tDirectPlay\tJellyfin Web\tFirefox\t7800\n"
    "2024-03-02 20:15:00.0000000\taa11\tf01\tMovie\tSeven\tDirectPlay\tJellyfin Web\tFirefox\t20\n"
    "2024-03-03 20:15:00.0000000\taa11\tf02\tEpisode\tDark - s01e02 - Lies\tTranscode\tTV\tTV\t3000\n"
    "2024-03-04 20:15:00.0000000\taa11\tf03\tAudio\tGorillaz - Feel Good Inc. (Demon Days)\tna\tTV\tTV\t200\n"
    "2024-03-05 20:15:00.0000000\taa11\tf04\tPhoto\tCat\tna\tTV\tTV\t900\n"
)


def test_jellyfin(tmp_path):
    expected = [
        Entry("The Matrix", None, 1709324100),
        Entry("Dark", None, 1709496900),
        Entry("Gorillaz", None, 1709583300),
    ]
    assert read("jellyfin", tmp_path / "backup.tsv", PLAYS) == expected
    source = Source(tmp_path / "backup.tsv")
    assert list(read_entries("jellyfin", source, {})) == expected
    assert source.left_out == {
        "played for less than 300 s": 1,
        "neither a film, an episode nor a track": 1,
    }
    household = PLAYS + PLAYS.replace("aa11", "bb22")
    with pytest.raises(DataError, match="2 users: aa11, bb22"):
        read("jellyfin", tmp_path / "backup.tsv", household)
    assert read("jellyfin", tmp_path / "backup.tsv", household, user="bb22") == expected
    with pytest.raises(DataError, match="no plays of user 'cc'"):
        read("jellyfin", tmp_path / "backup.tsv", household, user="cc")
    with pytest.raises(DataError, match="line 1: 2 columns instead of 9"):
        read("jellyfin", tmp_path / "backup.tsv", "a\tb\n")


def test_any_table(tmp_path):
    text = "Film,Made,Seen,No\nThe Matrix,1999,2024-03-01T20:15:00+01:00,1\nSeven,,,2\n"
    columns = {"title": "Film", "year": "Made", "time": "Seen", "item": "No"}
    expected = [Entry("The Matrix", 1999, 1709320500, "1"), Entry("Seven", None, None, "2")]
    assert read("csv", tmp_path / "f.csv", text, **columns) == expected
    assert read("csv", tmp_path / "f.tsv", text.replace(",", "\t"), **columns) == expected
    assert read("csv", tmp_path / "f.csv", "n\n3\n", item="n") == [Entry("3", None, None, "3")]
    with pytest.raises(ConfigError, match="column of the item is not known"):
        read("csv", tmp_path / "f.csv", text, year="Made")
    with pytest.raises(ConfigError, match="has no option 'titel'"):
        read("csv", tmp_path / "f.csv", text, titel="Film")
    with pytest.raises(DataError, match="no column 'Movie'"):
        read("csv", tmp_path / "f.csv", text, title="Movie")
    with pytest.raises(DataError, match="line 2"):
        read("csv", tmp_path / "f.csv", "Film,Seen\nSeven,yesterday\n", title="Film", time="Seen")


def test_times():
    assert seconds("0") == 0
    assert seconds("1700000000.9") == 1700000000
    assert seconds(" ") is None
    assert seconds("1970-01-02") == 86400


def test_a_file_is_added_in_order_and_once(device, tmp_path):
    path = tmp_path / "watched.csv"
    path.write_text(
        "Date,Name,Year,Letterboxd URI\n"
        "2023-03-01,Film 7,1967,u\n2023-01-01,film 9,1970,u\n2023-02-01,Fim 3,1963,u\n"
        "2023-02-01,Fim 3,1963,u\n"
    )
    report = import_file(device, "letterboxd", path, {}, "me")
    assert report[:4] == (4, 2, 2, 2)
    assert report.unmatched[0][:3] == ("Fim 3", 1963, 2)
    assert "3" in [item.id for item in report.unmatched[0].near]
    assert device.history() == ["9", "7"]
    assert import_file(device, "letterboxd", path, {}, "me").added == 0
    assert device.history() == ["9", "7"]


def test_what_commands_a_terminal_does_not_come_in(device, tmp_path):
    """Nor does it keep a title or an id from being found."""
    path = tmp_path / "seen.csv"
    path.write_text(
        "No,Film,Seen\n\x1b[5,,1\n\x075,,2\n,\u202eFilm\u00ad 6\x9b,3\n,annex\u202egpj.exe,4\n",
        encoding="utf-8",
    )
    report = import_file(device, "csv", path, {"item": "No", "title": "Film", "time": "Seen"}, "me")
    assert device.history() == ["5", "6"]
    assert [each.title for each in report.unmatched] == ["[5", "annexgpj.exe"]


def test_an_id_is_not_taken_for_a_title(device, tmp_path):
    path = tmp_path / "seen.csv"
    path.write_text("id,when\n5,2024-01-01\nFilm 6,2024-01-02\n")
    report = import_file(device, "csv", path, {"item": "id", "time": "when"}, "me")
    assert device.history() == ["5"]
    assert [each.title for each in report.unmatched] == ["Film 6"]


def test_wrong_files_and_formats(device, tmp_path):
    with pytest.raises(ConfigError, match="unknown format 'leterboxd'") as error:
        import_file(device, "leterboxd", tmp_path / "x", {}, "me")
    assert "letterboxd" in error.value.hint
    with pytest.raises(DataError, match="cannot be read"):
        import_file(device, "letterboxd", tmp_path / "x.csv", {}, "me")
    (tmp_path / "latin.csv").write_bytes("Date,Name,Year\n2023-01-01,Amélie,2001\n".encode("latin-1"))
    with pytest.raises(DataError, match="not text in UTF-8"):
        import_file(device, "letterboxd", tmp_path / "latin.csv", {}, "me")
