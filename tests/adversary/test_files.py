"""Files from outside, and what stays on the disk."""

from __future__ import annotations

import json
import sqlite3
import stat
import zipfile

import numpy as np
import pytest
from attack import attack

from solera.core.errors import SoleraError
from solera.device.importers import import_file
from solera.privacy.dp.noise import SystemNoise


@pytest.mark.xfail(strict=True, reason="importers have no budget")
@attack(
    "file",
    "A small file cannot make an import take much memory.",
    before="a zip of 1.5 MB took 1.6 GB and ended in a traceback",
)
def test_a_zip_that_grows(world, tmp_path, reached):
    path = tmp_path / "listens.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("listens/2024/1.jsonl", b'{"a":"' + b"x" * (64 << 20) + b'"}')
    with pytest.raises(SoleraError, match="unpacks to"):
        import_file(world(masked=False).devices[100], "listenbrainz", path, {}, "me")
    reached("refused")


@pytest.mark.xfail(strict=True, reason="deep JSON is a traceback")
@attack("file", "A deeply nested file is an error with a next step.", before="RecursionError traceback")
def test_a_deep_file(world, tmp_path, reached):
    path = tmp_path / "listens.jsonl"
    path.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(SoleraError):
        import_file(world(masked=False).devices[100], "listenbrainz", path, {}, "me")
    reached("refused")


@pytest.mark.xfail(strict=True, reason="escapes pass through")
@attack("file", "A title cannot send commands to a terminal.", before="escape sequences reached the terminal")
def test_a_title_with_terminal_commands(world, tmp_path, reached):
    path = tmp_path / "listens.jsonl"
    listen = {"listened_at": 1, "track_metadata": {"artist_name": "\x1b]0;owned\x07\x1b[2J"}}
    path.write_text(json.dumps(listen) + "\n")
    report = import_file(world(masked=False).devices[100], "listenbrainz", path, {}, "me")
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for each in report.unmatched for c in each.title)
    reached("removed")


@pytest.mark.xfail(strict=True, reason="forget does not look")
@attack(
    "local program",
    "`forget` leaves nothing in the database's files, or says that it could not.",
    before="rows stayed in the write-ahead log while another program read; nothing was said",
)
def test_forgetting_while_somebody_reads(world, reached):
    device = world(masked=False).devices[100]
    device.add("7", user="secret-name-of-somebody")
    reader = sqlite3.connect(device.path / "device.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM users").fetchall()
    device.store.connection.execute("PRAGMA busy_timeout = 200")
    with pytest.raises(SoleraError, match="another program"):
        device.forget()
    reader.close()
    reached("an error says so")


@pytest.mark.xfail(strict=True, reason="files are made with the usual rights")
@attack(
    "local program",
    "Files of devices and federations are for their owner alone.",
    before="database and server folder readable by every user of the machine (0644, 0755)",
)
def test_rights_of_files(world, reached):
    federation = world(masked=False)
    federation.round()
    for path in (*federation.server.path.rglob("*"), federation.devices[100].path / "device.db"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    reached("0600 and 0700")


@pytest.mark.xfail(strict=True, reason="noise is made of floating-point numbers")
@attack(
    "lying server",
    "The noise's low bits do not tell what it covers.",
    before="100 % against 1.3 % of small outputs on a grid, touched against untouched rows",
)
def test_low_bits_of_noise(reached):
    noise, std, count = SystemNoise(), 2.68, 200_000
    shares = []
    for value in (0.0, 0.3):
        covered = value + noise.normal((count,)).numpy() * std
        small = covered[np.abs(covered) < 2**-6]
        grid = small * 2.0**54
        shares.append(float((grid == np.rint(grid)).mean()))
    assert abs(shares[0] - shares[1]) < 0.05
    reached(f"{shares[1]:.0%} against {shares[0]:.0%}")
