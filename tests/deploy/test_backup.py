"""Backup and restore of a server's folder; under --dp, no round is released twice and no ε is lost."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from contextlib import closing

import pytest
import torch

from solera.core.errors import RunError
from solera.deploy.operate.backup import backup, restore
from solera.deploy.server.coordinator import Coordinator
from solera.deploy.server.folder import FederationFolder
from solera.deploy.server.versions import Versions


@pytest.fixture
def trained(local):
    """Two of three rounds, and a version."""
    made = local("fedmf", {"embedding_size": 4})
    made.run(2)
    state = made.coordinator.state
    Versions(made.server.path).add(state.shared, state.held, round_=2, catalogue=1, time=5)
    Versions(made.server.path).publish(1, 5)
    return made


def test_a_restored_server_goes_on_as_the_lost_one_would(trained, tmp_path):
    folder = trained.server.path
    (folder / "flower").mkdir()
    with closing(sqlite3.connect(folder / "flower" / "state.db")) as database:
        database.execute("CREATE TABLE nodes (number INTEGER)")
        database.execute("INSERT INTO nodes VALUES (100)")
        database.commit()
    (folder / "flower" / "control.token").write_text("secret")
    told = backup(folder, tmp_path / "b.tar.gz")
    assert told["rounds_done"] == 2
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o077 == 0
    before = Coordinator(FederationFolder.open(folder)).state.shared
    shutil.rmtree(folder)
    assert restore(tmp_path / "b.tar.gz", folder)["former"] is None
    trained.restart_server()
    after = trained.coordinator.state.shared
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert Versions(folder).standing.published == 1
    assert not (folder / "flower" / "control.token").exists()
    with closing(sqlite3.connect(folder / "flower" / "state.db")) as database:
        assert database.execute("SELECT number FROM nodes").fetchall() == [(100,)]
    assert trained.round() is not None
    assert [line["round"] for line in trained.server.lines("history.jsonl")] == [1, 2, 3]


def test_what_was_there_is_moved_aside(trained, tmp_path):
    backup(trained.server.path, tmp_path / "b.tar.gz")
    assert trained.round() is not None
    told = restore(tmp_path / "b.tar.gz", trained.server.path)
    assert len(FederationFolder(trained.server.path).lines("history.jsonl")) == 2
    former = trained.server.path.parent / told["former"]
    assert len(FederationFolder(former).lines("history.jsonl")) == 3


def test_a_damaged_backup_replaces_nothing(trained, tmp_path):
    path = tmp_path / "b.tar.gz"
    backup(trained.server.path, path)
    raw = bytearray(gzip.decompress(path.read_bytes()))
    at = raw.index(b'"rounds_done":2')
    raw[at + 14 : at + 15] = b"1"
    path.write_bytes(gzip.compress(bytes(raw)))
    with pytest.raises(RunError, match=r"damaged: checkpoint-2/progress\.json"):
        restore(path, trained.server.path)
    assert trained.server.load()[0].rounds_done == 2
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(RunError, match="is not a backup, or is damaged"):
        restore(path, trained.server.path)


def test_a_backup_waits_for_a_round_and_does_not_replace_a_file(trained, tmp_path):
    with trained.server.alone(), pytest.raises(RunError, match="another run"):
        backup(trained.server.path, tmp_path / "b.tar.gz", wait=0.1)
    (tmp_path / "b.tar.gz").write_text("")
    with pytest.raises(RunError, match="exists already"):
        backup(trained.server.path, tmp_path / "b.tar.gz")


@pytest.fixture
def private(local):
    pytest.importorskip("dp_accounting")
    from solera.dp.settings import DP

    return local("fedmf", {"embedding_size": 4}, rounds=6, dp=DP.parse("noise=2,delta=1e-5,clip=1"))


def test_rounds_after_the_backup_stay_spent(private, tmp_path):
    """Two rounds, a backup, then two more: of six rounds, four are spent, and two are left."""
    private.run(2)
    backup(private.server.path, tmp_path / "b.tar.gz")
    private.run(2)
    assert restore(tmp_path / "b.tar.gz", private.server.path)["lost_rounds"] == 2
    restored = Coordinator(FederationFolder.open(private.server.path))
    assert restored.progress.rounds_done == 2
    assert restored.progress.number == 4  # numbers 2 and 3 are never drawn from again
    assert restored.rounds - restored.progress.rounds_done == 2


def test_without_the_lost_folder_the_operator_says_how_many(private, tmp_path):
    private.run(1)
    backup(private.server.path, tmp_path / "b.tar.gz")
    shutil.rmtree(private.server.path)
    with pytest.raises(RunError, match="nothing tells how many rounds"):
        restore(tmp_path / "b.tar.gz", private.server.path)
    restore(tmp_path / "b.tar.gz", private.server.path, lost_rounds=3)
    restored = Coordinator(FederationFolder.open(private.server.path))
    assert (restored.rounds - restored.progress.rounds_done, restored.progress.number) == (2, 4)
    assert restore(tmp_path / "b.tar.gz", private.server.path)["lost_rounds"] == 3  # a second time as well
