"""Jellyfin's own database, watchlists, and what format a file has."""

from __future__ import annotations

import sqlite3
import zipfile

import pytest
from letterboxd_export import zipped

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import DataError
from solera.device.choices import Choices
from solera.device.importers import format_of, import_file

COLUMNS = (
    "DateCreated, UserId, ItemId, ItemType, ItemName, PlaybackMethod, ClientName, DeviceName, PlayDuration"
)


def play(path, *plays, mode="wal"):
    """Add plays (date, user, type, name, seconds) as Jellyfin does."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.execute(f"CREATE TABLE IF NOT EXISTS PlaybackActivity ({COLUMNS})")
    for date, user, type_, name, seconds in plays:
        row = (date, user, "x", type_, name, "DirectPlay", "Web", "TV", seconds)
        connection.execute(f"INSERT INTO PlaybackActivity VALUES ({', '.join('?' * len(row))})", row)
    connection.commit()
    connection.close()


FILM = ("2024-05-01 20:00:00.123", "u", "Movie", "Film 3", 5000)


def test_a_playback_database_is_read_and_left_alone(device, tmp_path):
    path = tmp_path / "playback_reporting.db"
    play(
        path,
        FILM,
        ("2024-05-02 20:00:00", "u", "Movie", "Film 4", 200),
        ("soon", "u", "Movie", "Film 5", 900),
    )
    before = path.read_bytes()
    report = import_file(device, "jellyfin", path, {}, "me")
    assert device.history() == ["3"]
    assert report.left_out == {"played for less than 300 s": 1, "bad row": 1}
    assert [each.date for each in device.entries.entries("me")] == ["2024-05-01T20:00:00Z"]
    assert path.read_bytes() == before
    play(path, ("2024-05-03 21:00:00", "u", "Movie", "Film 6", 5000))
    assert import_file(device, "jellyfin", path, {}, "me").added == 1


def test_a_database_of_another_kind_is_refused(device, tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    with pytest.raises(DataError, match="no such table: PlaybackActivity"):
        import_file(device, "jellyfin", path, {}, "me")


def test_a_view_that_never_ends_is_stopped(device, tmp_path, monkeypatch):
    monkeypatch.setattr("solera.device.importers.jellyfin._LONGEST", 0.2)
    path = tmp_path / "endless.db"
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE VIEW PlaybackActivity AS WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
        " SELECT x AS DateCreated, 'u' AS UserId, 'Movie' AS ItemType, x AS ItemName, 900 AS PlayDuration"
        " FROM n WHERE x < 0"
    )
    connection.close()
    with pytest.raises(DataError, match="interrupted"):
        import_file(device, "jellyfin", path, {}, "me")


def test_a_watchlist_is_chosen_from_and_is_no_history(device, tmp_path):
    path = tmp_path / "letterboxd.zip"
    rows = ["Date,Name,Year,Letterboxd URI", "2024-01-01,Film 7,1967,x", "2024-01-01,Film 8,1968,x"]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("watchlist.csv", "\n".join(rows))
        archive.writestr("watched.csv", f"{rows[0]}\n2024-01-01,Film 1,1961,x")
    report = import_file(device, "letterboxd", path, {}, "me", as_list=True)
    assert (report.added, report.matched) == (2, 2)
    assert Choices(device.store, "me").listed() == ["7", "8"]
    assert device.history() == []
    assert import_file(device, "letterboxd", path, {}, "me", as_list=True).added == 0
    alone = tmp_path / "watchlist.csv"
    alone.write_text("\n".join([rows[0], "2024-01-01,Film 9,1969,x"]))
    assert import_file(device, "letterboxd", alone, {}, "me", as_list=True).added == 1


def test_formats_are_told_apart(tmp_path):
    play(tmp_path / "a.db", FILM, mode="delete")
    zipped(tmp_path / "letterboxd.zip")
    with zipfile.ZipFile(tmp_path / "listens.zip", "w") as archive:
        archive.writestr("listens/2024/1.jsonl", "{}")
    (tmp_path / "backup.tsv").write_text("\t".join("123456789"))
    (tmp_path / "listens.jsonl").write_text('{"listened_at": 1}')
    (tmp_path / "diary.csv").write_text("\ufeffDate,Name,Year,Letterboxd URI\n", encoding="utf-8")
    (tmp_path / "films.csv").write_text("title,year\n")
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 and no more")
    found = {path.name: format_of(path) for path in tmp_path.iterdir()}
    assert found == {
        "a.db": "jellyfin",
        "backup.tsv": "jellyfin",
        "letterboxd.zip": "letterboxd",
        "diary.csv": "letterboxd",
        "listens.zip": "listenbrainz",
        "listens.jsonl": "listenbrainz",
        "films.csv": "csv",
        "broken.zip": "letterboxd",
    }
    with pytest.raises(DataError, match="cannot be read"):
        format_of(tmp_path / "nowhere")
