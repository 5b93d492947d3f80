"""How much is read of a file: up to a limit everything, one more and nothing."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import DataError
from solera.device.importers import LISTED, import_file, read_entries
from solera.device.importers.entry import Entry, whole, year_of
from solera.device.importers.source import DEFAULT, Budget, Source

LISTEN = '{"listened_at": 5, "track_metadata": {"artist_name": "x"}}'  # 58 characters


def read(format_: str, path: Path, text: str, limit: dict[str, int], **options: str) -> list[Entry]:
    path.write_text(text, encoding="utf-8")
    return list(read_entries(format_, Source(path, replace(DEFAULT, **limit)), options))


def zipped(path: Path, text: str, limit: dict[str, int], *names: str) -> int:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("listens/1.jsonl",):
            archive.writestr(name, text)
    return len(list(read_entries("listenbrainz", Source(path, replace(DEFAULT, **limit)), {})))


def test_limits_as_they_are_documented():
    assert Budget() == Budget(
        file_bytes=1_073_741_824,
        unpacked_bytes=4_294_967_296,
        ratio=250,
        zip_entries=10_000,
        line=1_048_576,
        depth=32,
        rows=2_000_000,
        name=500,
        users=1_000,
        films=50_000,
    )


@pytest.mark.parametrize(
    ("format_", "name", "text", "options"),
    [
        ("letterboxd", "a.csv", "Date,Name,Year\n2024-01-01,A,1999\n", {}),  # 15 + 18 characters
        ("csv", "a.csv", "Film\nA\n", {"title": "Film"}),
        ("csv", "a.tsv", "Film\tNo\nA\t1\n", {"title": "Film"}),
        ("jellyfin", "a.tsv", "2024-03-01\tu\ti\tMovie\tA\tx\ty\tz\t900\n", {}),
        ("listenbrainz", "a.jsonl", LISTEN + "\n", {}),
        ("listenbrainz", "a.json", f"[{LISTEN}]", {}),
    ],
)
def test_bytes_of_a_file(tmp_path, format_, name, text, options):
    assert len(read(format_, tmp_path / name, text, {"file_bytes": len(text)}, **options)) == 1
    with pytest.raises(DataError, match=rf"{name} has more than {len(text) - 1} bytes") as error:
        read(format_, tmp_path / name, text, {"file_bytes": len(text) - 1}, **options)
    assert "split the file" in error.value.hint


def test_lines_rows_and_entries_are_counted(tmp_path):
    lines = f"{LISTEN}\n\n{LISTEN}\n"  # an empty line is one as well
    assert len(read("listenbrainz", tmp_path / "a.jsonl", lines, {"rows": 3})) == 2
    with pytest.raises(DataError, match="more than 2 rows"):
        read("listenbrainz", tmp_path / "a.jsonl", lines, {"rows": 2})
    assert len(read("listenbrainz", tmp_path / "a.json", f"[{LISTEN},{LISTEN}]", {"rows": 2})) == 2
    with pytest.raises(DataError, match="more than 1 rows"):
        read("listenbrainz", tmp_path / "a.json", f"[{LISTEN},{LISTEN}]", {"rows": 1})
    names = ("listens/1.jsonl", "listens/2.jsonl")
    assert zipped(tmp_path / "a.zip", LISTEN, {"rows": 2}, *names) == 2
    with pytest.raises(DataError, match="more than 1 rows"):
        zipped(tmp_path / "a.zip", LISTEN, {"rows": 1}, *names)
    with pytest.raises(DataError, match="more than 3 rows"):
        read("csv", tmp_path / "a.csv", "Film\nA\nB\nC\n", {"rows": 3}, title="Film")


def test_a_line_has_an_end(tmp_path):
    assert len(read("listenbrainz", tmp_path / "a.jsonl", LISTEN, {"line": 58})) == 1
    with pytest.raises(DataError, match="line 1: more than 57 characters"):
        read("listenbrainz", tmp_path / "a.jsonl", LISTEN, {"line": 57})
    with pytest.raises(DataError, match=r"a\.zip, listens/1\.jsonl, line 2: more than 70 characters"):
        zipped(tmp_path / "a.zip", LISTEN + "\n" + " " * 71, {"line": 70})
    with pytest.raises(DataError, match="line 1: more than 20 characters"):
        read("jellyfin", tmp_path / "a.tsv", "2024-03-01\tu\ti\tMovie\tA\tx\ty\tz\t900\n", {"line": 20})


def test_a_record_of_several_lines_has_an_end(tmp_path):
    """The longest record is `"b`, `c"` and `,D` with their line breaks: 3 + 5 characters."""
    text = 'Film,No\n"b\nc",D\nE,F\n'
    assert [each.title for each in read("csv", tmp_path / "a.csv", text, {"line": 8}, title="No")] == [
        "D",
        "F",
    ]
    with pytest.raises(DataError, match="line 3: more than 7 characters"):
        read("csv", tmp_path / "a.csv", text.replace("Film", "Fi"), {"line": 7}, title="No")
    with pytest.raises(DataError, match="field larger than field limit"):
        read("csv", tmp_path / "a.csv", "Film\n" + "x" * 131_073, {}, title="Film")


@pytest.mark.parametrize("extra", ["", " " * 300, "\n" * 90])
def test_a_list_is_read_entry_by_entry(tmp_path, extra):
    """Whatever is between the entries, and wherever the pieces end in which it is read."""
    entries = [{"listened_at": n, "track_metadata": {"artist_name": "x" * (n % 7) + "é"}} for n in range(50)]
    text = f"{extra}[{extra}" + f"{extra},{extra}".join(map(json.dumps, entries)) + f"{extra}]{extra}"
    longest = max(len(json.dumps(entry)) for entry in entries)
    for line in (longest, longest + 1, longest + 13, 1000, 100_000):
        found = read("listenbrainz", tmp_path / "a.json", text, {"line": line})
        assert [each.time for each in found] == list(range(50))
    with pytest.raises(DataError, match=f"more than {longest - 1} characters"):
        read("listenbrainz", tmp_path / "a.json", text, {"line": longest - 1})
    with pytest.raises(DataError, match="no row that can be used: it is empty"):
        read("listenbrainz", tmp_path / "a.json", f"[{extra}]", {"line": 10})


@pytest.mark.parametrize("wrong", ["", "{}", "[", f"[{LISTEN}", f"[{LISTEN};{LISTEN}]", f"[{LISTEN}]]", "x"])
def test_what_is_no_list(tmp_path, wrong):
    with pytest.raises(DataError, match=r"not a JSON list of listens|entry 1: not JSON"):
        read("listenbrainz", tmp_path / "a.json", wrong, {})


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_depth(tmp_path, name):
    """A listen is two deep by itself."""
    deep = LISTEN.replace("5,", '5, "more": [[[]], {"a": 1}, [], [], [], [], "[[[["],')  # four
    text = deep if name == "a.jsonl" else f"[{deep}]"
    assert len(read("listenbrainz", tmp_path / name, text, {"depth": 4})) == 1
    with pytest.raises(DataError, match="1: nested more than 3 deep"):
        read("listenbrainz", tmp_path / name, text, {"depth": 3})


def test_bytes_that_a_zip_unpacks_to(tmp_path):
    assert zipped(tmp_path / "a.zip", LISTEN, {"unpacked_bytes": 58}) == 1
    with pytest.raises(DataError, match="unpacks to more than 57 bytes"):
        zipped(tmp_path / "a.zip", LISTEN, {"unpacked_bytes": 57})
    text = (LISTEN + "\n") * 100  # 5,900 characters
    assert zipped(tmp_path / "a.zip", text, {}) == 100
    size = (tmp_path / "a.zip").stat().st_size
    ratio = -(-5_900 // size)
    assert zipped(tmp_path / "a.zip", text, {"ratio": ratio}) == 100
    with pytest.raises(
        DataError, match=f"more than {size * (ratio - 1):,} bytes, .* of a zip of {size} bytes"
    ):
        zipped(tmp_path / "a.zip", text, {"ratio": ratio - 1})


def test_entries_of_a_zip(tmp_path):
    names = ("listens/1.jsonl", "listens/2.jsonl", "user.json")
    assert zipped(tmp_path / "a.zip", LISTEN, {"zip_entries": 3}, *names) == 2
    with pytest.raises(DataError, match="has more than 2 entries"):
        zipped(tmp_path / "a.zip", LISTEN, {"zip_entries": 2}, *names)
    with pytest.raises(DataError, match="no row that can be used: it is empty"):
        zipped(tmp_path / "a.zip", "\xff" * 100, {"unpacked_bytes": 1}, "user.json")


def test_names_that_are_too_long_are_left_out(device, tmp_path):
    path = tmp_path / "seen.csv"
    path.write_text("Film,No\n" + "x" * 500 + ",\n" + "x" * 501 + ",\nFilm 3,\n\x1b,\n,5\n")
    report = import_file(device, "csv", path, {"title": "Film", "item": "No"}, "me")
    assert report.left_out == {"the name has more than 500 characters": 1, "there is no name": 1}
    assert (report.entries, report.matched) == (3, 2)
    assert [len(each.title) for each in report.unmatched] == [500]


def test_titles_that_are_too_many_are_counted(device, tmp_path):
    path = tmp_path / "seen.csv"
    path.write_text("Film\nFilm 3\n" + "".join(f"unknown {n}\n" for n in range(LISTED + 3)) + "unknown 0\n")
    report = import_file(device, "csv", path, {"title": "Film"}, "me")
    assert (len(report.unmatched), report.unlisted) == (10_000, 3)
    assert (report.entries, report.matched, report.unmatched[0].times) == (10_005, 1, 2)


def test_users_of_a_server(tmp_path):
    plays = "".join(f"2024-03-01\tu{n}\ti\tMovie\tA\tx\ty\tz\t900\n" for n in range(12))
    assert len(read("jellyfin", tmp_path / "a.tsv", plays, {"users": 12}, user="u3")) == 1
    with pytest.raises(DataError, match="plays of more than 11 users"):
        read("jellyfin", tmp_path / "a.tsv", plays, {"users": 11}, user="u3")
    with pytest.raises(DataError) as error:
        read("jellyfin", tmp_path / "a.tsv", plays, {})
    assert error.value.message.endswith("12 users: u0, u1, u10, u11, u2, u3, u4, u5, u6, u7, …")
    with pytest.raises(DataError, match="id of more than 1 characters"):
        read("jellyfin", tmp_path / "a.tsv", plays, {"name": 1})


@pytest.mark.parametrize("wrong", ["0", "-1", "10000", "9" * 19, "9" * 5000, "MCM", "1999.0", "²"])
def test_what_is_no_year(wrong):
    with pytest.raises(ValueError, match=r"year|number|literal"):
        year_of(wrong)


def test_numbers():
    assert (year_of(" 1999 "), year_of(""), year_of("9999")) == (1999, None, 9999)
    assert whole("9" * 18) == 999_999_999_999_999_999


def test_columns_that_nobody_can_read_are_not_shown(tmp_path):
    header = ",".join(f"\x1bcolumn {n}" + "x" * 100 for n in range(200))
    with pytest.raises(DataError, match="no column 'Film'") as error:
        read("csv", tmp_path / "a.csv", header + "\n", {}, title="Film")
    assert error.value.hint.startswith("known: column 0xxx")
    assert len(error.value.hint) < 50 * 52 + 20
