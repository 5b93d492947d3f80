"""The entries of a history by the commands: listed, searched, corrected, removed, exported and read again."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from letterboxd_export import zipped
from typer.testing import CliRunner

from in_process import run, run_json

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.cli import app
from solera.core.errors import ConfigError, DataError, DeviceError
from solera.device.device import Device
from solera.device.history import Interaction, as_csv, quoted, unquoted
from solera.device.importers import read_entries
from solera.device.importers.source import Source


@pytest.fixture
def me(device, tmp_path) -> Path:
    zipped(tmp_path / "export.zip")
    run("device", "import", device.path, "letterboxd", tmp_path / "export.zip")
    return device.path


def test_an_import_says_what_became_of_every_row(device, tmp_path):
    zipped(tmp_path / "export.zip")
    shown = run("device", "import", device.path, "letterboxd", tmp_path / "export.zip")
    assert "rows used: watched.csv (7), ratings.csv (3), diary.csv (2), likes/films.csv (1)" in shown
    assert "not used: profile.csv, reviews.csv, watchlist.csv" in shown
    assert "What became of 13 rows" in shown
    assert "4 items in the catalogue" in shown
    assert "a rating of 3.5 or more counts as a like (--like-from); 1 item is seen only" in shown
    assert "bad row: watched.csv, line 8" in shown
    assert f'solera device match {device.path} "Fim 5 (1965)" 5' in shown


def test_listing_and_searching(me):
    listed = run("device", "history", me)
    assert listed.index("Film 2 (1962)") < listed.index("Film 1 (1961)")  # newest first
    assert "2023-04-01" in listed
    assert "seen only" in listed
    assert "the newest 1 of 5 entries" in run("device", "history", me, "-n", 1)
    found = run_json("device", "history", me, "--search", "film 3")
    assert [(each["item"], each["date"], each["counts"]) for each in found] == [("3", "2023-01-03", False)]
    assert "no entry of me contains 'xyz'" in run("device", "history", me, "--search", "xyz")
    assert "you has no history yet" in run("device", "history", me, "--user", "you")


def test_correcting(me):
    number = run_json("device", "history", me, "--search", "Film 1")[0]["number"]
    shown = run("device", "correct", me, number, "--item", "Film 7", "--time", "2022-05-01T20:15")
    assert "before: Film 1 (1961) at 2023-01-01, from letterboxd" in shown
    assert "now:    Film 7 (1967) at 2022-05-01T20:15:00Z" in shown
    assert run_json("device", "correct", me, number, "--seen-only")["counts"] is False
    device = Device.open(me)
    assert "7" not in device.history()
    run("device", "correct", me, number, "--liked", "--time", "")
    assert device.history()[0] == "7"
    assert device.entries.entry("me", number).time is None
    first, second = (each["number"] for each in run_json("device", "history", me, "--search", "Film 2"))
    with pytest.raises(DeviceError, match="that item at that time already"):
        run("device", "correct", me, second, "--time", "2023-03-01")
    with pytest.raises(DeviceError, match="no entry 999"):
        run("device", "correct", me, 999, "--liked")
    with pytest.raises(ConfigError, match="nothing to correct"):
        run("device", "correct", me, first)
    device.close()


def test_removing_asks(me):
    number = run_json("device", "history", me, "--search", "Film 3")[0]["number"]
    with pytest.raises(ConfigError, match=r"Film 3 .* would be deleted, and nobody is there"):
        run("device", "forget", me, number)
    assert "1 entry deleted" in run("device", "forget", me, number, "--yes")
    assert run_json("device", "history", me, "--search", "Film 3") == []
    run("device", "add", me, "Film 3")  # no opinion is left of before
    assert run_json("device", "history", me, "--search", "Film 3")[0]["counts"] is True


def test_a_terminal_is_asked(me, monkeypatch):
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))  # the test's runner has none
    monkeypatch.setattr("solera.cli.folder.sys", terminal)
    asked = []
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question))
    run("device", "forget", me, "--all")
    assert asked == ["Delete 5 entries, everything about 1 user, and the record of what was sent?"]


@given(st.text("'=+-@;,\"a \t\r\n\uff1d\uff20"))
def test_a_quoted_cell_is_read_as_it_was(cell):
    """Also one that begins with quotes of its own; and nothing but quotes is added."""
    formula = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
    in_file = quoted(cell)
    assert unquoted(in_file) == cell
    assert not any(part.startswith(formula) for part in in_file.split(";"))
    if not any(part.lstrip("'").startswith(formula) for part in cell.split(";")):
        assert in_file == cell


@given(st.lists(st.text("'=+-@;,\"ab ", min_size=1).filter(str.strip), min_size=1))
def test_titles_are_read_from_an_exported_history(titles):
    entries = [Interaction(0, title, title, None, "test", True) for title in titles]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "history.csv"
        path.write_text(as_csv(entries))
        read = list(read_entries("csv", Source(path), {"item": "item", "title": "title"}))
        assert [(each.item, each.title) for each in read] == [
            (title.strip(), title.strip()) for title in titles
        ]
        path.write_text(as_csv(entries).replace("counts", "liked", 1))  # somebody else's file is left alone
        read = list(read_entries("csv", Source(path), {"title": "title"}))
        assert [each.title for each in read] == [quoted(title).strip() for title in titles]


def test_exporting_and_reading_again(me, tmp_path):
    path = tmp_path / "history.csv"
    assert "history.csv: 5 entries" in run("device", "history", me, "-o", path).replace("\n", "")
    assert path.read_text().splitlines()[:2] == [
        "item,title,time,source,counts",
        "1,Film 1 (1961),2023-01-01,letterboxd,yes",
    ]
    run("device", "history", me, "-o", tmp_path / "history.json")
    before = json.loads((tmp_path / "history.json").read_text())
    assert [each["item"] for each in before] == ["1", "3", "4", "2", "2"]
    run("device", "forget", me, "--all", "--yes")
    run("device", "import", me, "csv", path, "--columns", "item=item,time=time,counts=counts")
    after = run_json("device", "history", me)
    same = ("item", "time", "counts")
    assert [[each[name] for name in same] for each in after] == [
        [each[name] for name in same] for each in before
    ]
    with pytest.raises(ConfigError, match=r"neither a \.csv nor a \.json"):
        run("device", "history", me, "-o", tmp_path / "history.txt")


def test_matching(me, tmp_path):
    assert "no titles have been matched" in run("device", "match", me)
    listed = run_json("device", "match", me, "Fim 5 (1965)", "Film 5")
    assert listed == [{"title": "Fim 5", "year": 1965, "item": "5", "meant": "Film 5 (1965)"}]
    assert run_json("device", "import", me, "letterboxd", tmp_path / "export.zip")["added"] == 1
    assert run_json("device", "match", me, "Fim 5 (1965)", "--remove") == []
    with pytest.raises(DeviceError, match="no match of"):
        run("device", "match", me, "Fim 5 (1965)", "--remove")
    for wrong in (("Fim 5",), ("Fim 5", "5", "--remove"), ("--remove",)):
        with pytest.raises(ConfigError):
            run("device", "match", me, *wrong)


def test_near_titles_are_asked_about(device, monkeypatch, tmp_path):
    from solera.cli import device_import

    terminal = type("Terminal", (), {"isatty": lambda _: True})()
    monkeypatch.setattr(device_import, "sys", type("Sys", (), {"stdin": terminal, "stdout": terminal}))
    shown = run(
        *("device", "import", device.path, "letterboxd", zipped(tmp_path / "export.zip")), answers="y\n1\n"
    )
    assert "matched: Fim 5 is Film 5 (1965)" in shown
    assert "5" in device.history()


def test_files_without_anything_to_import(device, tmp_path):
    path = tmp_path / "watched.csv"
    path.write_text("hello")
    with pytest.raises(DataError, match="is not the header"):
        run("device", "import", device.path, "letterboxd", path)
    path.write_text("Date,Name,Year\n2023-01-01,Oppenheimer,2023\n")
    done = CliRunner().invoke(app, ["device", "import", str(device.path), "letterboxd", str(path)])
    assert done.exit_code == 2
    assert "nothing was imported: no title is in the catalogue" in done.output
    short = "2024-03-01 20:15:00\taa11\tf00\tMovie\tFilm 3\tDirectPlay\tWeb\tTV\t{}\n"
    path.write_text(short.format(299))
    with pytest.raises(DataError, match="1 × played for less than 300 s"):
        run("device", "import", device.path, "jellyfin", path)
    path.write_text(short.format(299) + short.format(300) + "x\n")
    report = run_json("device", "import", device.path, "jellyfin", path)
    assert (report["added"], report["left_out"]) == (1, {"played for less than 300 s": 1, "bad row": 1})


def test_the_outbox_in_plain_words(device):
    sums = {"rows": (25,), "row_weights": (25,), "change/items": (25, 33), "trained": (1,)}
    device.sent({"slots": (1,)}, b"a", round_=-1, steps=(), kind="enrol")
    device.sent(sums, b"b", round_=0, steps=("plain",), kind="train", federation="f")
    device.sent({"items": (5,), "trained": (1,)}, b"c", round_=0, steps=("plain",), kind="train")
    device.sent({"message": (9,)}, b"d", round_=1, steps=("plain", "masked"), kind="mask", federation="f")
    members = [{"users": users} for users in (30, 8, 12)]
    terms = {"least_users": 10, "groups": [{"threshold": 2, "members": members}]}  # at least 8 + 12 people
    device.store.connection.execute(
        "INSERT INTO rounds (federation, round, attempt, state, stage, cohort, time, terms)"
        " VALUES ('f', 1, 0, '', 3, '{}', 0, ?)",
        (json.dumps(terms),),
    )
    told = [each["told"] for each in run_json("device", "outbox", device.path)]
    assert told[0] == "that 1 person on this device can take part"
    assert told[1].endswith("25 items: your history, and random ones drawn with it")
    assert told[2].endswith("it shows which items you trained on, 5 items of your history")
    assert "hidden in a sum over at least 20 people, you among them" in told[3]
    shown = run("device", "outbox", device.path)
    assert "2 uploads that the server could read, 1 upload hidden in sums" in shown
    assert "--no-allow-plain" in shown
    assert "25×33" in run("device", "outbox", device.path, "--raw")
