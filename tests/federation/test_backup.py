"""Backup and restore of a server's folder; under --dp, no round is released twice and no ε is lost."""

from __future__ import annotations

import gzip
import shutil

import pytest
import torch

from solera.core.errors import DeployError, RunError
from solera.federation.common.address import Address
from solera.federation.operate import server
from solera.federation.operate.backup import backup, restore
from solera.federation.operate.processes import free_port
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder
from solera.federation.server.versions import Versions
from solera.federation.web.store import Message


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
    assert trained.round() is not None
    assert [line["round"] for line in trained.server.lines("history.jsonl")] == [1, 2, 3]


def test_devices_are_in_a_backup_and_one_that_was_revoked_stays_so(trained, keys, foreign_keys, tmp_path):
    """Whether it was revoked before the backup, or after it; of what was under way, nothing is left."""
    folder, away = trained.server.path, tmp_path / "away"
    first, second = (keys / "nodes" / f"node-{number}.pub" for number in (1, 2))
    other = foreign_keys / "nodes" / "node-1.pub"
    address = Address("127.0.0.1", free_port(), keys / "ca.pem")
    with server.running(folder, address, keys) as running:
        message = Message(7, "train", "1", b"", "f" * 64)
        running.store.send([message], fence=running.store.take_over(), seconds=600)
        assert running.store.blobs() == {"f" * 64}
        server.register(folder, [other])
        server.revoke(folder, [first])
        backup(folder, tmp_path / "b.tar.gz")
        server.revoke(folder, [second])
        with pytest.raises(RunError, match="is running"):
            restore(tmp_path / "b.tar.gz", folder)
    for each, gone in ((folder, {first, second}), (away, {first})):
        restore(tmp_path / "b.tar.gz", each)
        with server.running(each, address, keys) as running:  # its folder of keys still has all files
            found = {key: revoked for key, _, revoked in running.store.known()}
            assert running.store.blobs() == set()
        paths = [first, second, other]
        assert found == {key: path in gone for path, (key, _) in zip(paths, server.named(paths), strict=True)}


def test_a_server_behind_nginx_is_not_restored_under_itself_nor_started_twice(trained, keys, tmp_path):
    """It listens on a socket of its own, so nobody answers at the federation's address."""
    folder, address = trained.server.path, Address("127.0.0.1", free_port(), keys / "ca.pem")
    backup(folder, tmp_path / "b.tar.gz")
    with server.running(folder, address, keys, path=tmp_path / "s"):
        with pytest.raises(RunError, match="is running"):
            restore(tmp_path / "b.tar.gz", folder)
        with pytest.raises(DeployError, match="another server"), server.running(folder, address, keys):
            pass
    restore(tmp_path / "b.tar.gz", folder)


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
