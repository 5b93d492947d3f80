"""Files for their user alone, whatever the umask."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from solera.federation.common.address import Address
from solera.federation.common.private_files import close, is_open, private_files, private_folder
from solera.federation.operate import server
from solera.federation.operate.processes import Process, free_port


@pytest.fixture(autouse=True)
def careless():
    """Everybody may do everything."""
    former = os.umask(0)
    yield
    os.umask(former)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.lstat().st_mode))


def test_what_is_written_in_the_block(tmp_path):
    with private_files():
        (tmp_path / "inside").write_text("x")
        (tmp_path / "folder").mkdir()
    (tmp_path / "after").write_text("x")
    assert [mode(tmp_path / name) for name in ("inside", "folder", "after")] == ["0o600", "0o700", "0o666"]


def test_folders(tmp_path):
    (tmp_path / "open").mkdir()
    assert is_open(tmp_path / "open")
    assert mode(private_folder(tmp_path / "open")) == mode(private_folder(tmp_path / "new")) == "0o700"


def test_closing_leaves_the_rest_alone(tmp_path):
    mine, foreign = tmp_path / "mine", tmp_path / "foreign"
    (mine / "sub").mkdir(parents=True)
    (mine / "sub" / "program").write_text("x")
    (mine / "sub" / "program").chmod(0o755)
    foreign.write_text("x")
    (mine / "link").symlink_to(foreign)
    close(mine)
    assert [mode(mine), mode(mine / "sub"), mode(mine / "sub/program")] == ["0o700", "0o700", "0o700"]
    assert mode(foreign) == "0o666"


def test_a_program_and_its_log(tmp_path):
    code = f"open({str(tmp_path / 'written')!r}, 'w')"
    process = Process([sys.executable, "-c", code], dict(os.environ), tmp_path / "logs" / "log")
    process._popen.wait()
    assert [mode(tmp_path / name) for name in ("logs", "logs/log", "written")] == ["0o700", "0o600", "0o600"]


def test_a_federation_of_a_former_version_is_closed(tmp_path, keys):
    folder = tmp_path / "films"
    (folder / "network").mkdir(parents=True)
    (folder / "checkpoint-3").mkdir()
    ours = ("network/old.log", "events.jsonl", "settings.json", "checkpoint-3/shared.safetensors")
    for name in (*ours, "notes.txt"):
        (folder / name).write_text("x")
    with server.running(folder, Address("127.0.0.1", free_port(), keys / "ca.pem"), keys):
        pass
    assert {mode(folder / name) for name in ours} == {"0o600"}
    assert {mode(path) for path in (folder / "network").iterdir() if path.is_file()} == {"0o600"}
    assert mode(folder / "checkpoint-3") == mode(folder / "network") == "0o700"
    assert mode(folder / "notes.txt") == "0o666"  # not ours
