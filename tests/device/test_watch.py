"""A file that another program writes is imported as it grows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_playback import play

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import DataError
from solera.device.device import Device
from solera.device.watch import changes, watch


def listen(item: int, second: int) -> str:
    return json.dumps({"listened_at": second, "track_metadata": {"artist_name": f"Film {item}"}}) + "\n"


def test_changes_are_seen_once(tmp_path):
    path = tmp_path / "growing"
    looks: list[int] = []

    def wait() -> None:
        looks.append(len(looks))
        if len(looks) in (2, 5):
            path.write_text("x" * len(looks))
        if len(looks) == 7:
            path.with_name("growing-wal").write_text("x")

    seen = changes(path, wait)
    at = []
    for _ in range(3):
        next(seen)
        at.append(len(looks))
    assert at == [2, 5, 7]


def test_new_entries_are_added_and_bad_states_pass(device, tmp_path, monkeypatch):
    path = tmp_path / "listens.jsonl"
    steps = iter(
        [
            lambda: path.write_text(""),
            lambda: path.write_text(listen(3, 100)),
            lambda: path.write_text(listen(3, 100) + listen(4, 200)[:20]),  # cut off while it is written
            lambda: path.write_text(listen(3, 100) + listen(4, 200)),
            lambda: path.write_text("title\nFilm 9 is no listen\n"),
        ]
    )
    monkeypatch.setattr("solera.device.watch.time.sleep", lambda _: next(steps)())
    found = watch(device, path, {}, "me", 1.0)
    empty = next(found)
    assert isinstance(empty, DataError)
    said = [next(found) for _ in range(4)]
    assert [getattr(each, "added", None) for each in said[:3]] == [1, None, 1]
    assert device.history() == ["3", "4"]
    assert isinstance(said[1], DataError) and isinstance(said[3], DataError)


def test_a_playback_database_is_watched_by_the_command(device, tmp_path):
    """In a process of its own, while Jellyfin writes."""
    path = tmp_path / "playback_reporting.db"
    play(path, ("2024-05-01 20:00:00", "u", "Movie", "Film 3", 5000))
    folder = str(device.path)
    command = [sys.executable, "-m", "solera", "device", "import", folder, "jellyfin", str(path)]
    command += ["--watch", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert "1 entry added" in process.stdout.readline()
            play(path, ("2024-05-02 20:00:00", "u", "Movie", "Film 4", 5000))
            until, line = time.monotonic() + 30, ""
            while "1 entry added" not in line and time.monotonic() < until:
                line = process.stdout.readline()
            assert "1 entry added, 1 known" in line
        finally:
            process.terminate()
    opened = Device.open(Path(folder))
    assert opened.history() == ["3", "4"]
    opened.close()
