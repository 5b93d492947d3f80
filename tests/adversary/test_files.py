"""Files from outside, and what stays on the disk."""

from __future__ import annotations

import sqlite3
import stat
import unicodedata
from pathlib import Path

import hostile_files as hostile
import numpy as np
import pytest
import torch
from attack import attack
from hostile_files import PLAY, artist
from imported import MOST, imported
from typer.testing import CliRunner

from solera.cli import app
from solera.core.errors import SoleraError
from solera.device.device import Device
from solera.device.importers import import_file
from solera.dp.noise import SystemNoise


@attack(
    "file",
    "A small file cannot make an import take much memory.",
    before="refused, but only after a zip of 1.5 MB had taken 4.6 GB",
)
def test_a_zip_that_grows(device, tmp_path, reached):
    outcome = imported(device.path, hostile.zip_that_grows(tmp_path))
    assert outcome.refused
    assert "unpacks to more than" in outcome.answer["error"]
    assert outcome.peak < MOST
    reached(f"refused, {outcome.peak:.0f} MB")


@attack("file", "A deeply nested file is an error with a next step.", before="RecursionError traceback")
def test_a_deep_file(device, tmp_path, reached):
    file = hostile.listens(tmp_path, "[" * 100_000 + "]" * 100_000)
    with pytest.raises(SoleraError, match="nested more than 32 deep") as error:
        import_file(device, "listenbrainz", file.path, {}, "me")
    assert error.value.hint
    reached("refused")


def commands(text: str) -> list[str]:
    """The characters of a text that a terminal would obey, and not show."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c != "\n"]


@attack("file", "A title cannot send commands to a terminal.", before="escape sequences reached the terminal")
def test_a_title_with_terminal_commands(device, tmp_path, reached):
    file = hostile.listens(tmp_path, artist("\x1b]0;owned\x07\x1b[2J") + artist("Fi\x1blm 3\x9b"))
    report = import_file(device, "listenbrainz", file.path, {}, "me")
    assert [each.title for each in report.unmatched] == ["]0;owned[2J"]
    assert device.history() == ["3"]
    reached("removed, and the title is still found")


@attack(
    "file",
    "A title cannot change the order in which a terminal shows its characters.",
    before="bidirectional overrides reached the terminal",
)
def test_a_title_that_is_read_backwards(device, tmp_path, reached):
    file = hostile.films(tmp_path, "Date,Name,Year\n2024-01-01,annex\u202e\u2066gpj.exe,1999\n")
    done = CliRunner().invoke(app, ["device", "import", str(device.path), "letterboxd", str(file.path)])
    assert "annexgpj.exe" in done.stdout
    assert commands(done.stdout) == []
    reached("removed")


@attack("file", "Half a character in a title breaks nothing.", before="UnicodeEncodeError traceback")
def test_half_a_character(device, tmp_path, reached):
    outcome = imported(device.path, hostile.listens(tmp_path, artist("x\ud800y")))
    assert (outcome.code, outcome.answer["unmatched"][0]["title"]) == (2, "xy")  # nothing to import
    reached("removed")


@attack(
    "file", "An error cannot send commands to a terminal.", before="escape sequences reached the terminal"
)
def test_an_error_with_terminal_commands(device, tmp_path, reached):
    text = PLAY.format(user="\x1b[2Jann", seconds=900) + PLAY.format(user="b\u202eob", seconds=900)
    outcome = imported(device.path, hostile.plays(tmp_path, text))
    assert outcome.refused
    assert "2 users: [2Jann, bob" in outcome.answer["error"]
    assert commands(outcome.answer["error"] + outcome.answer["next"] + outcome.complaint) == []
    reached("removed")


@attack(
    "stranger",
    "A bundle's catalogue cannot send commands to a terminal.",
    before="escape sequences in titles and ids reached the terminal",
)
def test_a_catalogue_with_terminal_commands(device, reached):
    for arguments in (("add", device.path, "]0;ownedFilm 12"), ("add", device.path, "12[8m")):
        done = CliRunner().invoke(app, ["device", *map(str, arguments)])
        assert "Film 12 (item 12[8m)" in done.stdout
        assert commands(done.stdout) == []
    assert device.history() == ["12[8m"]
    reached("removed, and the item is still found")


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


@attack(
    "local program",
    "`forget` leaves nothing in the database's files, or says that it could not.",
    before="rows stayed in the write-ahead log while another program read; nothing was said",
)
def test_forgetting_while_somebody_reads(device, reached):
    device.add("7", user="secret-name-of-somebody")
    reader = sqlite3.connect(device.path / "device.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM users").fetchall()
    device.store.connection.execute("PRAGMA busy_timeout = 200")
    with pytest.raises(SoleraError, match=r"copies of them remain in the write-ahead log .* another program"):
        device.forget()
    assert device.status()["users"] == []
    assert b"secret-name" in everything_in(device.path)
    reader.close()
    assert device.forget() == 0
    assert b"secret-name" not in everything_in(device.path)
    reached("an error says so, and the same command finishes it later")


@attack(
    "local program",
    "Files of devices are for their owner alone.",
    before="database and bundle readable by every user of the machine (0644), an older folder too (0755)",
)
def test_rights_of_a_device(bundle, tmp_path, reached):
    path = tmp_path / "device"
    path.mkdir()
    path.chmod(0o755)
    device = Device.create(path, bundle)
    device.add("7")
    names = {each.suffix for each in path.iterdir()}
    assert names == {".db", ".db-wal", ".db-shm", ".bundle"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()} == {0o600}
    device.close()
    reached("0600 and 0700")


@attack(
    "lying server",
    "The noise's low bits do not tell what it covers.",
    before="100 % against 1.3 % of small outputs on a grid, touched against untouched rows",
)
def test_low_bits_of_noise(reached):
    noise, std, count = SystemNoise(), 2.68, 200_000
    shares = []
    for value in (0.0, 0.3):
        covered = noise.cover(torch.full((count,), value, dtype=torch.float64), std, 1.0).numpy()
        small = covered[np.abs(covered) < 2**-6]
        grid = small * 2.0**54
        shares.append(float((grid == np.rint(grid)).mean()))
    assert abs(shares[0] - shares[1]) < 0.05
    reached(f"{shares[1]:.0%} against {shares[0]:.0%}")
