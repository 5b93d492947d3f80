"""Disks that are full at every moment of a command, as real file systems of one megabyte.

SOLERA_PAGES=1 pytest tests/adversary/test_full_disk.py      # every size; otherwise some
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from attack import attack

from made_ratings import write_ratings
from solera.cli import main
from solera.device.bundle import Item
from solera.device.folder import DATABASE
from solera.device.publish import start
from solera.runs import RunFolder

PAGE = 4096
STEP = int(os.environ.get("SOLERA_PAGES", "5"))  # every how many sizes are tried


def mounted(folder: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path):
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mounted(folder):
        pytest.skip("this machine lets nobody mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def some(sizes: range) -> list[int]:
    """The first four, the last, and some between them."""
    return sorted({*sizes[:4], *sizes[::STEP], sizes[-1]})


def leave(disk: Path, pages: int) -> None:
    """Fill the disk until so many pages are free."""
    free = os.statvfs(disk)
    size = free.f_bavail * free.f_frsize - pages * PAGE
    (disk / "others").write_bytes(bytes(size))


def make_room(disk: Path) -> None:
    gc.collect()  # as when a process ends: closes the files of the command that failed
    (disk / "others").unlink()


@pytest.fixture
def command(monkeypatch, capsys):
    """Run a command as the program does, and return its exit code and what it says on standard error."""

    def run(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["solera", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def assert_next_step(error: str) -> None:
    assert "error: " in error
    assert "Traceback" not in error
    assert re.search(r"next: .*\b(room|space)\b", error), error


@attack(
    "crash",
    "A run on a full disk ends with a next step, and --resume completes it with the same result.",
    before="a traceback, and at the start a folder that no command continued",
)
def test_a_run_on_a_full_disk(disk, tmp_path, command, reached):
    """Before: `OSError: [Errno 28]` with a traceback, and a folder with one file, which was no run."""
    ratings = write_ratings(tmp_path / "r.csv", users=60, items=50, each=9, seed=2)
    train = ("train", "fedmf", "--data", ratings, "--rounds", 3, "-o", "embedding_size=4", "--out")
    assert command(*train, tmp_path / "whole")[0] == 0
    whole = RunFolder.open(tmp_path / "whole").result
    failed = []
    for pages in some(range(16)):
        out = disk / f"run-{pages}"
        leave(disk, pages)
        code, error = command(*train, out)
        make_room(disk)
        if code:
            assert code == 2
            assert_next_step(error)
            code, error = command(*train, out, "--resume")
            assert code == 0, error
            failed.append(pages)
        found = RunFolder.open(out).result
        assert found.test == whole.test
        assert not list(out.glob(".*"))
        shutil.rmtree(out)
    assert failed[:4] == [0, 1, 2, 3]  # and not at the end, where there is room enough
    assert pages not in failed
    reached("an error with a next step; --resume gives the same figures")


@pytest.fixture(scope="module")
def films(publisher_key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("films") / "films.bundle"
    items = [Item(str(number), f"Film {number}", None) for number in range(1500)]
    start("fedmf", items, path, publisher_key, options={"embedding_size": 1})
    return path


def rows(device: Path) -> list[str]:
    """All that the database of a device holds."""
    with closing(sqlite3.connect(device / DATABASE)) as connection:
        return list(connection.iterdump())


@attack(
    "crash",
    "An import on a full disk ends with a next step, and changes nothing on the device.",
    before="refused",
)
def test_an_import_on_a_full_disk(disk, films, publisher_key, command, reached):
    """Before: the same. An import is one transaction."""
    export = disk.parent / "films.csv"
    export.write_text("Film\n" + "".join(f"Film {number}\n" for number in range(1500)))
    made, failed = disk.parent / "me", []
    key = publisher_key.with_suffix(".pub")
    assert command("device", "init", made, "--bundle", films, "--key", key)[0] == 0
    before = rows(made)
    for pages in some(range(0, 104, 8)):
        me = shutil.copytree(made, disk / f"me-{pages}")
        bring = ("device", "import", me, "csv", export, "--columns", "title=Film")
        leave(disk, pages)
        code, error = command(*bring)
        make_room(disk)
        if code:
            assert code == 2
            assert_next_step(error)
            assert rows(me) == before
            assert command(*bring)[0] == 0
            failed.append(pages)
        assert len(rows(me)) == len(before) + 1501  # and the user
        shutil.rmtree(me)
    assert failed[0] == 0 and len(failed) > 1  # the count of free pages is off by some
    assert pages not in failed
    reached("an error with a next step; every row is as before")


@attack(
    "crash",
    "A device that is made on a full disk ends with a next step, and can be made when there is room.",
    before="refused",
)
def test_a_device_made_on_a_full_disk(disk, films, publisher_key, command, reached):
    """Before: the same."""
    key, failed = publisher_key.with_suffix(".pub"), []
    for pages in some(range(0, 144, 8)):
        me = disk / f"me-{pages}"
        init = ("device", "init", me, "--bundle", films, "--key", key)
        leave(disk, pages)
        code, error = command(*init)
        make_room(disk)
        if code:
            assert code == 2
            assert_next_step(error)
            code, error = command(*init)
            assert code == 0, error
            failed.append(pages)
        assert command("device", "status", me)[0] == 0
        shutil.rmtree(me)
    assert failed[0] == 0 and len(failed) > 1  # the count of free pages is off by some
    assert pages not in failed
    reached("an error with a next step; the same command makes the device later")
