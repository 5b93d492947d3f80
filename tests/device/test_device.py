"""A device recommends what the simulator would, says why, survives kills and full disks, and forgets."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from solera.core.method import Method

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import BundleError, DeviceError
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.device.bundle import Bundle
from solera.device.catalogue import natural
from solera.device.choices import Choices
from solera.device.device import Device
from solera.device.folder import DATABASE
from solera.device.keys import make_keys
from solera.device.model import Model
from solera.device.models.opened import open_model
from solera.device.publish import export
from solera.device.store import Store
from solera.engine import Simulation, train_one_by_one
from solera.runs import Run

HISTORY_BASED = ("fedease", "fedslist", "fedslist-sparse", "fedhist")


@pytest.mark.parametrize("method", HISTORY_BASED)
def test_it_recommends_what_the_simulator_does(method, trained, bundled, data, tmp_path):
    """What `solera recommend` gives for the run's folder, up to the rounding of single precision."""
    run = Run.open(trained(method).path, data=data)
    device = Device.create(tmp_path / "d", Bundle.open(bundled(method)))
    for user in ("u0", "u7", "u29"):
        row = data.by_user.row(data.user_map.index(user))
        for when, item in enumerate(row):
            assert device.add(data.item_map.id(int(item)), time=when, user=user)
        expected = [each._replace(title=natural(each.title)) for each in run.recommend(user, 12)]
        shown = device.recommend(12, user=user)
        assert [each[:3] for each in shown] == [each[:3] for each in expected]
        assert [each.score for each in shown] == pytest.approx(
            [each[3] for each in expected], rel=1e-6, abs=1e-7
        )


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "compact"])
@pytest.mark.parametrize("method", HISTORY_BASED)
def test_reasons_add_up_to_the_score(method, whole, bundled, tmp_path):
    device = Device.create(tmp_path / "d", Bundle.open(bundled(method, whole=whole)))
    device.add_all([(str(item), item) for item in (3, 14, 15, 9, 26, 5)], "me", "test")
    found = device.recommend(40, reasons=3)
    assert len(found) == 34
    for one in found:
        assert len(one.reasons) <= 3
        assert all(reason.part > 0 for reason in one.reasons)
        total = sum(reason.part for reason in one.reasons) + one.others + one.popular
        assert total == pytest.approx(one.score, rel=1e-5, abs=1e-6)
        assert {reason.item for reason in one.reasons} <= {"3", "14", "15", "9", "26", "5"}
        parts = [reason.part for reason in one.reasons]
        assert parts == sorted(parts, reverse=True)
    assert any(one.popular for one in found) == (method == "fedhist")


def test_parts_of_ease_are_its_matrix(bundled):
    bundle = Bundle.open(bundled("fedease"))
    (parts,) = open_model(bundle).parts(np.array([4, 2, 31]), [7])
    assert parts.of_history == Model(bundle).shared["weights"][[4, 2, 31], 7].tolist()


def test_a_user_without_parameters_of_its_own_trains_them_alone(bundled, tmp_path, data):
    """Nothing is sent, nothing is kept, and the outcome is that of one client's local training."""
    device = Device.create(tmp_path / "d", Bundle.open(bundled("fedmf")))
    device.add_all([("1", 1), ("2", 2), ("5", 3)], "me", "test")
    shown = device.recommend(40)
    assert device.outbox() == [] and device.kept() == {}

    shared = Model(device.bundle).shared
    rows = np.array([device.catalogue.number[item] for item in ("1", "2", "5")])
    known = Ragged.of_lengths(np.array([3]), rows)
    method = Model(device.bundle).method
    assert isinstance(method, Method)
    alone = Simulation(
        method,
        ClientData(known, known.sorted_unique(), data.n_items),
        train_one_by_one,
        seed=0,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    alone.restore(shared, alone.state.personal.tensors())
    alone.run_round(0)
    user = alone.state.personal.whole["user"][0]
    scores = {device.catalogue.items[i].id: float(v) for i, v in enumerate(shared["items"] @ user)}
    assert {each.item: each.score for each in shown} == pytest.approx(
        {item: score for item, score in scores.items() if item not in ("1", "2", "5")}, abs=1e-6
    )
    with pytest.raises(DeviceError, match="cannot give reasons"):
        device.recommend(reasons=2)


def test_order_repeats_and_unknown_times(device):
    device.add_all([("5", 200), ("6", 100), ("7", None), ("5", 50), ("8", None)], "me", "test")
    assert device.history() == ["7", "8", "5", "6"]
    assert device.add_all([("5", 200), ("7", None), ("9", 1)], "me", "again") == 1
    assert device.history("you") == []
    with pytest.raises(DeviceError, match="user 'you' has no history yet"):
        device.recommend(user="you")


def test_one_unknown_item_and_nothing_is_added(device):
    with pytest.raises(DeviceError, match="no item 'x'"):
        device.add_all([("5", 1), ("x", 2)], "me", "test")
    assert device.history() == []


def test_own_parameters_come_back_as_they_were(device):
    kept: dict[str, Any] = {
        "vector": np.arange(3, dtype=np.float32),
        "rows": np.ones((2, 2)),
        "n": np.array([7]),
    }
    device.keep("me", {"old": np.zeros(4)})
    device.keep("me", kept)
    found = device.kept()
    assert found.keys() == kept.keys()
    for name, value in kept.items():
        assert found[name].dtype == value.dtype
        assert np.array_equal(found[name], value)
    device.forget(user="me")
    assert device.kept() == {}


def test_the_outbox_records_what_is_sent(device):
    assert device.outbox() == []
    device.sent(
        {"items": (2, 3)},
        b"abc",
        round_=4,
        steps=["clip 1.0", "noise 0.5"],
        kind="train",
        federation="f" * 32,
    )
    (entry,) = device.outbox()
    assert entry.pop("told") == "your upload, which the server can read"
    assert entry | {"time": 0} == {
        "time": 0,
        "kind": "train",
        "federation": "f" * 32,
        "round": 4,
        "tensors": {"items": [2, 3]},
        "bytes": 3,
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "steps": ["clip 1.0", "noise 0.5"],
        "people": None,
        "protection": "",
    }
    device.forget(user="me")
    assert len(device.outbox()) == 1
    device.forget()
    assert device.outbox() == []


def test_what_is_forgotten_is_in_no_file(device):
    for name in ("alice-in-wonderland", "bob-the-builder"):
        device.add_all([(str(item), item) for item in range(30)], name, f"source-of-{name}")
    assert device.forget(user="alice-in-wonderland") == 30
    everything = b"".join(path.read_bytes() for path in device.path.iterdir())
    assert b"alice" not in everything
    assert b"source-of-bob" in everything
    assert device.forget(item="5", user="bob-the-builder") == 1
    assert device.forget(item="6") == 1
    assert len(device.history("bob-the-builder")) == 28
    device.forget()
    assert b"bob" not in b"".join(path.read_bytes() for path in device.path.iterdir())


def test_forgetting_while_another_program_writes(device):
    """VACUUM itself has to wait then."""
    device.add("5")
    writer = sqlite3.connect(device.path / DATABASE, isolation_level=None)
    device.store.connection.execute("PRAGMA busy_timeout = 100")
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(DeviceError, match="another program uses the database") as error:
        device.store.wipe()
    assert "then run the same command again" in error.value.hint
    writer.close()
    device.forget()
    assert (device.path / f"{DATABASE}-wal").stat().st_size == 0


def test_forgetting_that_fails_is_not_called_undone(device):
    device.add("5")
    device.store.connection.set_progress_handler(lambda: 1, 1)
    with pytest.raises(DeviceError, match="rows are deleted, but copies of them may remain"):
        device.store.wipe()


def modes(device: Device) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in device.path.iterdir()}


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_files_are_private_whatever_the_umask(bundled, tmp_path, mask):
    """Also those that an older version made."""
    before = os.umask(mask)
    try:
        device = Device.create(tmp_path / "d", Bundle.open(bundled("fedslist")))
        device.add("5")
        assert modes(device) == {0o600}
        assert len(list(device.path.iterdir())) == 4
        assert stat.S_IMODE(device.path.stat().st_mode) == 0o700
        for path in (device.path, *device.path.iterdir()):
            path.chmod(0o755)
        assert modes(Device.open(device.path)) == {0o600}
        assert stat.S_IMODE(device.path.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_a_user_has_a_name_that_can_be_shown(device):
    with pytest.raises(DeviceError, match="not a valid user name") as error:
        device.add("5", user="\x1b[2Jann")
    assert "\x1b" not in error.value.message
    assert device.status()["users"] == []
    device.add("5", user="ann")
    device.store.connection.execute("UPDATE users SET name = char(27) || 'ann'")
    assert [user["name"] for user in device.status()["users"]] == ["ann"]


def test_a_newer_bundle_of_the_same_publisher_alone(device, trained, data, keys, tmp_path):
    device.add("5", time=1)
    run = trained("fedease").path
    newer, older = tmp_path / "2.bundle", tmp_path / "1.bundle"
    export(run, older, Path(f"{keys}.key"), data=data)
    export(run, newer, Path(f"{keys}.key"), data=data, catalogue_version=2)
    device.update(newer)
    assert device.status()["method"] == "fedease"
    assert Device.open(device.path).history() == ["5"]
    assert len(list(device.path.glob("*.bundle"))) == 2  # it and the one before
    with pytest.raises(BundleError, match="version 1, older than 2"):
        device.update(older)
    make_keys(tmp_path / "stranger")
    export(run, tmp_path / "3.bundle", tmp_path / "stranger.key", data=data, catalogue_version=3)
    with pytest.raises(BundleError, match="another key"):
        device.update(tmp_path / "3.bundle")
    assert len(device.recommend(3)) == 3


def test_an_update_is_undone_and_done_again(device, trained, data, keys, tmp_path):
    device.add("5", time=1)
    first, shown = device.bundle.digest, device.recommend(5)
    with pytest.raises(DeviceError, match="no earlier model"):
        device.go_back()
    for version in (2, 3):
        path = tmp_path / f"{version}.bundle"
        export(trained("fedease").path, path, Path(f"{keys}.key"), data=data, catalogue_version=version)
        device.update(path)
    assert len(list(device.path.glob("*.bundle"))) == 2
    assert device.go_back().manifest.catalogue_version == 2
    assert device.go_back().manifest.catalogue_version == 3
    device.go_back()
    device.keep("me", {"own": np.zeros(2)})
    device.update(tmp_path / "3.bundle")
    with pytest.raises(DeviceError, match="older catalogue"):
        device.go_back()
    assert first not in {file.stem for file in device.path.glob("*.bundle")}
    assert [one.item for one in device.recommend(5)] != [one.item for one in shown]


def test_what_is_hidden_or_not_allowed_is_not_recommended(device):
    device.add("5", time=1)
    best = [one.item for one in device.recommend(5)]
    choices = Choices(device.store, "me")
    choices.hide(best[0])
    assert [one.item for one in device.recommend(4)] == best[1:]
    assert choices.hidden() == best[:1]
    choices.hide(best[0], hidden=False)
    assert [one.item for one in device.recommend(5)] == best
    assert [one.item for one in device.recommend(5, allowed=lambda item: item.id in best[2:4])] == best[2:4]
    assert choices.add_listed([best[0], best[1], best[0]], "csv") == 2
    device.forget(item=best[0])
    assert choices.listed() == [best[1]]
    device.forget(user="me")
    assert choices.listed() == []


@pytest.mark.parametrize("method", ["fedslist", "fedhist"])
def test_similar_items_are_what_the_item_alone_recommends(bundled, tmp_path, method):
    device = Device.create(tmp_path / "me", Bundle.open(bundled(method)))
    device.add("7", time=1)
    similar = [item.id for item in device.similar("7", 5)]
    assert similar and "7" not in similar
    if method == "fedslist":
        assert similar == [one.item for one in device.recommend(5) if one.score > 0]
    device.close()


def test_a_changed_bundle_in_the_folder_is_noticed(device):
    (path,) = device.path.glob("*.bundle")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    opened = Device.open(device.path)
    with pytest.raises(BundleError):
        opened.add("5")
        opened.recommend()


def test_folders_that_are_no_device(device, bundled, tmp_path):
    bundle = Bundle.open(bundled("fedslist"))
    with pytest.raises(DeviceError, match="contains no device"):
        Device.open(tmp_path / "nowhere")
    with pytest.raises(DeviceError, match="already contains a device"):
        Device.create(device.path, bundle)
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").touch()
    with pytest.raises(DeviceError, match="is not empty and contains no device"):
        Device.create(other, bundle)
    for version, words in ((1, "too old"), (99, "newer version")):
        device.store.connection.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(DeviceError, match=words):
            Device.open(device.path)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / DATABASE).write_text("no database at all, but long enough to be read as one" * 100)
    with pytest.raises(DeviceError, match="not a database"):
        Device.open(broken)


def test_a_device_of_version_0_1_is_brought_up_to_date(device):
    """Its history stays; what it has sent is in the outbox as before."""
    device.add("3")
    device.sent({"items": (2, 3)}, b"abc", round_=4, steps=[])
    connection = device.store.connection
    for table in (
        "federations",
        "rounds",
        "seen_only",
        "aliases",
        "hidden",
        "disliked",
        "listed",
        "tokens",
        "evaluations",
    ):
        connection.execute(f"DROP TABLE {table}")
    for column in ("kind", "federation"):
        connection.execute(f"ALTER TABLE outbox DROP COLUMN {column}")
    connection.execute("CREATE TABLE masked_rounds (context TEXT)")
    connection.execute("PRAGMA user_version = 2")
    device.close()
    again = Device.open(device.path)
    assert again.history() == ["3"]
    assert [(each["round"], each["kind"]) for each in again.outbox()] == [(4, "")]
    assert again.status()["federations"] == []
    again.close()


def test_an_interrupted_start_is_taken_up(bundled, tmp_path):
    """Killed after the copy of the bundle and before the tables."""
    path = tmp_path / "d"
    path.mkdir()
    (path / ".bundle.partial").write_bytes(b"half")
    Store(path / DATABASE).close()
    device = Device.create(path, Bundle.open(bundled("fedslist")))
    assert device.status()["database"] == "ok"
    assert not (path / ".bundle.partial").exists()


def test_a_full_disk_is_said_and_changes_nothing(device):
    device.add("1", time=1)
    connection = device.store.connection
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    rows = [(str(item % 40), 10 + item) for item in range(2000)]
    with pytest.raises(DeviceError, match="full") as error:
        device.add_all(rows, "me", "test")
    assert "make room" in error.value.hint
    assert device.history() == ["1"]
    assert device.status()["database"] == "ok"
    connection.execute("PRAGMA max_page_count = 100000")
    assert device.add_all(rows, "me", "test") == 2000


def write_until_killed(path, start: int, pipe: int) -> None:
    """One interaction, then five in one step, and so on; every finished step is acknowledged."""
    device = Device.open(path)
    while True:
        device.add(str(start % 40), time=start)
        os.write(pipe, f"{start}\n".encode())
        device.add_all([(str(at % 40), at) for at in range(start + 1, start + 6)], "me", "batch")
        os.write(pipe, f"{start + 5}\n".encode())
        start += 6


@pytest.mark.parametrize("kills", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_at_any_moment_nothing_acknowledged_is_lost(device, kills):
    draw, start = random.Random(0), 0
    device.close()  # an open database must not be taken through a fork
    for _ in range(kills):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                write_until_killed(device.path, start, writing)
            finally:
                os._exit(1)
        os.close(writing)
        acknowledged = os.read(reading, 1 << 16)
        time.sleep(draw.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        while more := os.read(reading, 1 << 16):
            acknowledged += more
        os.close(reading)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        opened = Device.open(device.path)
        assert opened.status()["database"] == "ok"
        times = [row[0] for row in opened.store.rows("SELECT time FROM interactions ORDER BY id")]
        last = int(acknowledged.split()[-1])
        assert times == list(range(len(times)))
        assert len(times) in (last + 1, last + 1 + (5 if last % 6 == 0 else 1))
        start = len(times) + -len(times) % 6
        opened.add_all([(str(at % 40), at) for at in range(len(times), start)], "me", "fill")
        opened.close()
