"""Files and folders that are whole, or as they were."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from solera.core.files import PRIVATE, creating_folder, remove_folder, replacing_file, write_atomically


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """One that takes the right to write from others."""
    former = os.umask(0o022)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("data", ["Amélie\n", b"\x00\xff"])
def test_what_is_given_is_written(tmp_path: Path, data: str | bytes) -> None:
    path = tmp_path / "file"
    path.write_text("former")
    write_atomically(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_holds_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("former")
    path.chmod(0o644)
    with replacing_file(path, PRIVATE) as partial:
        assert mode(partial) == 0o600
        partial.write_text("secret")
    assert mode(path) == 0o600
    write_atomically(path, "for all")
    assert mode(path) == 0o644


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace", "pathlib.Path.write_bytes"])
def test_a_failure_leaves_the_former_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    path.write_text("former")

    def full(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="disk full"):
        patched.setattr(failing, full)
        write_atomically(path, "new")
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_while_it_is_filled_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("former")

    def stop(partial: Path) -> None:
        partial.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), replacing_file(path) as partial:
        stop(partial)
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


def test_the_content_is_synced_before_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, real = tmp_path / "file", [], os.fsync

    def fsync(handle: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        assert path.exists() == (synced[-1] == "folder")
        real(handle)

    monkeypatch.setattr("os.fsync", fsync)
    write_atomically(path, "new")
    assert synced == ["file", "folder"]


def test_a_kill_at_any_moment_leaves_one_of_the_two(tmp_path: Path) -> None:
    path = tmp_path / "file"
    code = f"""
from pathlib import Path
from solera.core.files import write_atomically
print("ready", flush=True)
while True:
    for letter in "ab":
        write_atomically(Path({str(path)!r}), letter * 200_000)
"""
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert writer.stdout
        writer.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(0.1)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert path.read_text() in ("a" * 200_000, "b" * 200_000)


def test_two_that_write_the_same_file(tmp_path: Path) -> None:
    path, failed = tmp_path / "file", []

    def write(letter: str) -> None:
        try:
            for _ in range(50):
                write_atomically(path, letter * 50_000)
                assert path.read_text() in ("a" * 50_000, "b" * 50_000)
        except Exception as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failed == []
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_gets_its_name_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint-3"
    (tmp_path / ".checkpoint.partial").mkdir()  # a kill left it
    (tmp_path / ".checkpoint.partial" / "half").touch()
    with creating_folder(path, mode=0o700) as partial:
        (partial / "first").touch()
        assert not path.exists()
    assert [each.name for each in path.iterdir()] == ["first"]
    assert mode(path) == 0o700
    with pytest.raises(KeyboardInterrupt), creating_folder(path):
        raise KeyboardInterrupt
    with pytest.raises(OSError, match="not empty"), creating_folder(path):
        pass
    assert [each.name for each in path.iterdir()] == ["first"]
    assert list(tmp_path.iterdir()) == [path]
    remove_folder(path)
    remove_folder(path)
    assert list(tmp_path.iterdir()) == []
