"""What a process that ends at any of its writes leaves behind: run by test_crash_points.py, with LD_PRELOAD.

    python crash_points.py FOLDER POINTS HOW SCENARIO…     prints what was tried and what went wrong, in JSON

POINTS are so many, spread over the work; 0 for all. HOW is kill, or full: the disk is full from there on.

A scenario prepares a folder once. For each point, the folder is laid anew, a child process does the work and
ends at that point, and this process looks at what is there, and goes on as a restarted program would.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from one_process import Local
from solera.core import files
from solera.core.errors import SoleraError, full_disk
from solera.device import keys as publisher
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.importers import import_file
from solera.device.ledger import JOINED, Ledger, Stage
from solera.device.policy import Agreement
from solera.device.publish import start
from solera.federation.common.authority import make_keys
from solera.federation.common.invitation import Invitation
from solera.federation.node.accepted import accept, accepted, leave
from solera.federation.node.membership import Membership
from solera.federation.operate.backup import backup, restore
from solera.federation.operate.inviting import invitation
from solera.federation.server.coordinator import Coordinator
from solera.federation.server.folder import FederationFolder
from solera.federation.server.versions import Versions

CRASHED = 77
CONTROL = "remove first"  # saves as version 0.2 did
ITEMS = [Item(str(number), f"Film {number}", None) for number in range(24)]
Acknowledge = Callable[..., None]
SHIM = ctypes.CDLL(None)  # with what LD_PRELOAD has brought


def digest(folder: Path) -> str:
    """Of all files and their names, but locks."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".lock" and path.name != "lock":
            found.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return found.hexdigest()


class Scenario:
    """Work that may end at any moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # laid anew for every point
        self.beside = folder.parent / "beside"  # stays as it is
        self.beside.mkdir()

    def prepare(self) -> None:
        """Fill the folder."""

    def work(self, acknowledge: Acknowledge) -> None:
        """Do it; `acknowledge` is what somebody was told."""

    def check(self, told: list[Any]) -> None:
        """Look at what is left, and go on."""


class Rounds(Scenario):
    """A federation's server and its devices, all killed at once in a round."""

    masked = False
    sizes: tuple[int, ...] = (2, 1, 1)

    def prepare(self) -> None:
        publisher.make_keys(self.beside / "publisher")
        make_keys(self.beside / "keys", len(self.sizes))
        draw = np.random.default_rng(3)
        made = Local(
            self.folder,
            key=self.beside / "publisher.key",
            catalogue=ITEMS,
            histories=[draw.choice(24, 6, replace=False).tolist() for _ in range(sum(self.sizes))],
            method="fedmf",
            options={"embedding_size": 4},
            precision="double",
            sizes=self.sizes,
            settings={"rounds": 9} | ({"secure_aggregation": True, "threshold": 0.6} if self.masked else {}),
            node_keys=self.beside / "keys" if self.masked else None,
        )
        assert made.round() is not None
        self.histories = made.histories
        made.close()

    def opened(self) -> Local:
        """The federation as restarted programs find it."""
        made = Local.__new__(Local)
        made.folder, made.histories, made.sent = self.folder, self.histories, []
        made.bundle = Bundle.open(self.folder / "start.bundle")
        made.tamper, made.forge = (lambda node, kind, packet: packet), (lambda node, kind, packet: packet)
        made.devices = {100 + n: Device.open(self.folder / f"node{100 + n}") for n in range(len(self.sizes))}
        made.server = FederationFolder.open(self.folder / "server")
        made.coordinator = Coordinator(made.server)
        return made

    def work(self, acknowledge: Acknowledge) -> None:
        federation = self.opened()

        def left(node: int, kind: str, packet: Any) -> Any:
            if "declined" not in packet.fields:  # on a full disk, a refusal may be in no outbox
                acknowledge("message", node, kind)
            return packet

        federation.tamper = left
        federation.round()
        acknowledge("done")

    def check(self, told: list[Any]) -> None:
        federation = self.opened()
        for number, device in federation.devices.items():
            there = [entry["kind"] for entry in device.outbox()]
            for kind in {what[2] for what in told if what[0] == "message" and what[1] == number}:
                before = 1 + (kind == "train")  # in the first round
                sent = sum(what == ["message", number, kind] for what in told)
                assert there.count(kind) >= before - 1 + sent, f"{number}: {kind} is not in the outbox"
        done = federation.coordinator.progress.rounds_done
        assert done == 2 or ["done"] not in told, "a round that was acknowledged is lost"
        for attempt in range(1, 5):
            if federation.coordinator.progress.rounds_done < 2:
                federation.round(attempt=attempt)
        assert federation.coordinator.progress.rounds_done == 2, "the round cannot be done any more"
        lines = [line["round"] for line in federation.server.lines("history.jsonl")]
        assert len(lines) == len(set(lines)), f"a round is counted twice: {lines}"
        self.compare(federation)
        federation.close()

    def compare(self, federation: Local) -> None:
        """What was learned is what an undisturbed simulation learns: every upload once."""
        federation.finish()
        for name, apart in federation.differences(federation.simulated(rounds=2)).items():
            assert apart < 1e-8, f"{name} differs by {apart}"


class MaskedRounds(Rounds):
    """The same with masks: no second sum of a round is opened, and none is forgotten."""

    masked = True
    sizes = (1, 1, 1, 1)

    def compare(self, federation: Local) -> None:
        known = federation.server.opened_rounds()
        for device in federation.devices.values():
            rows = device.store.rows(
                "SELECT round, COUNT(*) FROM rounds WHERE stage = ? GROUP BY round", Stage.REVEALED
            )
            opened = {row[0]: row[1] for row in rows}
            assert set(opened.values()) <= {1}, f"two sums of one round were opened: {opened}"
            assert set(opened) <= known, "a sum was opened that the server does not know of"


class Save(Rounds):
    """Checkpoints of the same round and of the next, versions, and a change of settings."""

    def work(self, acknowledge: Acknowledge) -> None:
        server = FederationFolder.open(self.folder / "server")
        coordinator, versions = Coordinator(server), Versions(server.path)
        for step in range(3):
            coordinator.state.shared["items"].fill_(step)
            server.save(coordinator.progress, coordinator.state.shared, coordinator.state.held)
            acknowledge("saved", step)
        for number in (1, 2, 3):
            versions.add(coordinator.state.shared, coordinator.state.held, round_=1, catalogue=1, time=number)
            versions.publish(number, number)
            acknowledge("published", number)
            versions.prune(1)
        server.change({"rounds": 12})
        acknowledge("changed")

    def check(self, told: list[Any]) -> None:
        server = FederationFolder.open(self.folder / "server")
        coordinator, versions = Coordinator(server), Versions(server.path)
        assert coordinator.progress.rounds_done == 1
        assert len(coordinator.progress.ledger.nodes) == 3
        saved = max([what[1] for what in told if what[0] == "saved"], default=-1)
        found = coordinator.state.shared["items"]
        values = [step for step in range(3) if torch.equal(found, torch.full_like(found, step))]
        assert values or saved == -1, "the checkpoint is none that was written"
        assert not values or values[0] >= saved, "an older checkpoint"
        published = max([what[1] for what in told if what[0] == "published"], default=0)
        standing = versions.standing.published or 0
        assert standing >= published
        if standing:
            versions.load(standing)
        assert server.identity.settings.rounds in ((12,) if ["changed"] in told else (9, 12))
        server.save(coordinator.progress, coordinator.state.shared, coordinator.state.held)
        versions.add(coordinator.state.shared, coordinator.state.held, round_=1, catalogue=1, time=9)
        folders = [path.name for path in server.path.iterdir() if path.is_dir()]
        assert len(folders) == 2, f"left behind: {folders}"


class Create(Rounds):
    """A new federation, which can be made again where making it was ended."""

    def prepare(self) -> None:
        super().prepare()
        shutil.rmtree(self.folder / "server")

    def work(self, acknowledge: Acknowledge) -> None:
        FederationFolder.prepare(
            self.folder / "server", Bundle.open(self.folder / "start.bundle"), {"rounds": 3}, resume=False
        )
        acknowledge("made")

    def check(self, told: list[Any]) -> None:
        if not FederationFolder(self.folder / "server").exists:
            assert told == []
            self.work(lambda *what: None)
        server = FederationFolder.open(self.folder / "server")
        assert (Coordinator(server).rounds, len(server.bundles())) == (3, 1)


class Backup(Rounds):
    """A backup that is there restores; the federation is as it was."""

    def work(self, acknowledge: Acknowledge) -> None:
        backup(self.folder / "server", self.folder / "b.tar.gz")
        acknowledge("written")

    def check(self, told: list[Any]) -> None:
        server, written = self.folder / "server", self.folder / "b.tar.gz"
        assert digest(server) == digest(self.beside.parent / "laid" / "server")
        assert written.exists() or told == []
        if not written.exists():
            backup(server, written)
        restore(written, self.folder / "restored")
        assert Coordinator(FederationFolder.open(self.folder / "restored")).progress.rounds_done == 1


class Restore(MaskedRounds):
    """A backup of round 1, restored over a federation that is at round 2: its second sum stays opened."""

    def prepare(self) -> None:
        super().prepare()
        backup(self.folder / "server", self.folder / "b.tar.gz")
        federation = self.opened()
        assert federation.round() is not None
        federation.close()

    def work(self, acknowledge: Acknowledge) -> None:
        restore(self.folder / "b.tar.gz", self.folder / "server")
        acknowledge("restored")

    def check(self, told: list[Any]) -> None:
        folder = self.folder / "server"
        if told == []:  # the operator gives the command again
            before = digest(folder) if folder.exists() else ""
            whole = FederationFolder(folder).exists and Coordinator(FederationFolder(folder))
            assert not before or whole, "neither the old folder nor the new one"
            restore(self.folder / "b.tar.gz", folder)
        federation = self.opened()
        assert federation.coordinator.progress.rounds_done == 1
        assert federation.coordinator.progress.number == 2, "a round's number would be used again"
        assert federation.round(attempt=1) is not None
        assert federation.server.opened_rounds() == {0, 1, 2}
        aside = list(self.folder.glob("server.before-restore-*"))
        assert aside and all(FederationFolder(each).exists for each in aside), "the former folder is gone"
        federation.close()


class OneDevice(Scenario):
    """A device of its own."""

    def prepare(self) -> None:
        publisher.make_keys(self.beside / "publisher")
        bundle = start(
            "fedmf",
            ITEMS,
            self.beside / "x.bundle",
            self.beside / "publisher.key",
            options={"embedding_size": 4},
        )
        with closing(Device.create(self.folder / "me", bundle)) as device:
            device.add_all([(str(item), item) for item in range(4)], "me", "test")


class Import(OneDevice):
    """All of a file or nothing; a second try adds nothing twice."""

    def prepare(self) -> None:
        super().prepare()
        rows = "".join(f"2024-01-{1 + item % 28:02d},Film {item},,x\n" for item in range(2, 24))
        (self.beside / "diary.csv").write_text(f"Date,Name,Year,Letterboxd URI\n{rows}")

    def work(self, acknowledge: Acknowledge) -> None:
        with closing(Device.open(self.folder / "me")) as device:
            import_file(device, "letterboxd", self.beside / "diary.csv", {}, user="me")
            acknowledge("imported")

    def check(self, told: list[Any]) -> None:
        with closing(Device.open(self.folder / "me")) as device:
            there = len(device.history("me"))
            assert there in ((24,) if told else (4, 24)), f"{there} entries"
            import_file(device, "letterboxd", self.beside / "diary.csv", {}, user="me")
            assert len(device.history("me")) == 24
            assert device.store.rows("PRAGMA integrity_check")[0][0] == "ok"


class Forget(OneDevice):
    """What was told to be deleted is gone."""

    def work(self, acknowledge: Acknowledge) -> None:
        with closing(Device.open(self.folder / "me")) as device:
            device.forget()
            acknowledge("forgotten")

    def check(self, told: list[Any]) -> None:
        with closing(Device.open(self.folder / "me")) as device:
            there = len(device.history("me"))
            assert there in ((0,) if told else (0, 4)), f"{there} entries"


class Accept(OneDevice):
    """An invitation is accepted with its key and its terms, or not at all; it can be left and taken again."""

    def prepare(self) -> None:
        super().prepare()
        make_keys(self.beside / "keys", 1)
        asked = Agreement(masked=True, least_nodes=12)
        made = invitation(self.beside / "keys", "node-9", "h.example:80", "films", asked)
        (self.beside / "invitation").write_text(made.model_dump_json(exclude_none=True))

    @property
    def invitation(self) -> Invitation:
        return Invitation.read(str(self.beside / "invitation"))

    def work(self, acknowledge: Acknowledge) -> None:
        with closing(Device.open(self.folder / "me")) as device:
            accept(device, self.invitation)
            acknowledge("accepted", (device.path / "federation" / "node.pub").read_text())
            leave(device)
            acknowledge("left")

    def check(self, told: list[Any]) -> None:
        with closing(Device.open(self.folder / "me")) as device:
            there, ledger = accepted(device.path), Ledger(device.store)
            if there is not None and told and told[-1][0] == "accepted":
                assert there.public_key.read_text() == told[-1][1], "another key than was shown"
            if ["left"] in told:
                assert there is None
                assert not (device.path / "federation").exists()
            if ledger.joins_next:  # it would take part, so its key and the signer must be there
                assert there is not None
                assert there.key.read_bytes() and Membership.read(device.store) is not None
            accept(device, self.invitation)
            assert ledger.asked("a" * 32, Agreement(masked=True, least_nodes=12)) == JOINED
            assert accepted(device.path) is not None


SCENARIOS: dict[str, type[Scenario]] = {
    "save": Save,
    "create": Create,
    "round": Rounds,
    "masked round": MaskedRounds,
    "backup": Backup,
    "restore": Restore,
    "import": Import,
    "forget": Forget,
    "accept": Accept,
}


def child(scenario: Scenario, at: int) -> tuple[int, list[Any], int]:
    """How a process ends that does the work up to a point, what it acknowledged, how many points it passed.

    From a negative point on, the disk is full: that is an error with a next step.
    """
    reading, writing = os.pipe()
    number = os.fork()
    if number == 0:
        code = 1
        try:
            os.close(reading)

            def acknowledge(*what: Any) -> None:
                os.write(writing, json.dumps(what).encode() + b"\n")

            SHIM.crash_arm(str(scenario.folder).encode(), ctypes.c_long(at))
            try:
                scenario.work(acknowledge)
            except (SoleraError, OSError, sqlite3.Error) as error:
                if at >= 0 or (not isinstance(error, SoleraError) and full_disk(error) is None):
                    raise
            os.write(writing, json.dumps(["points", SHIM.crash_count()]).encode() + b"\n")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = [json.loads(line) for line in pipe]
    _, status = os.waitpid(number, 0)
    points = next((what[1] for what in told if what[0] == "points"), 0)
    return os.waitstatus_to_exitcode(status), [what for what in told if what[0] != "points"], points


@contextmanager
def removing_first(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """As version 0.2 replaced a folder: for the control."""
    number = int(path.name.rpartition("-")[2])
    path = path.with_name(f"checkpoint-{min(number, 1)}")
    partial = path.with_name(".checkpoint.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=mode)
    yield partial
    shutil.rmtree(path, ignore_errors=True)
    partial.replace(path)


def tried(scenario_of: type[Scenario], root: Path, wanted: int, how: str) -> dict[str, Any]:
    """So many points of a scenario: how many there are, how many ended the work, and what went wrong.

    The control needs one that went wrong, and ends there.
    """
    full = how == "full"
    root.mkdir(parents=True)
    work, laid = root / "work", root / "laid"
    work.mkdir()
    scenario = scenario_of(work)
    scenario.prepare()
    gc.collect()
    shutil.copytree(work, laid)

    def lay() -> None:
        gc.collect()
        shutil.rmtree(work)
        shutil.copytree(laid, work)

    lay()
    code, told, points = child(scenario, 0)
    assert code == 0, "the work fails undisturbed"
    scenario.check(told)
    failed: list[str] = []
    ended = 0
    for at in sorted(set(np.linspace(1, points, wanted or points).astype(int).tolist())):
        lay()
        code, told, _ = child(scenario, -at if full else at)
        ended += full or code == CRASHED
        try:
            assert code in (0, CRASHED), f"ended with {code}"
            scenario.check(told)
        except (AssertionError, SoleraError, OSError) as error:
            said = error.message if isinstance(error, SoleraError) else repr(error)
            failed.append(f"point {at} of {points}, told {told[-1:]}: {said}")
            if how == CONTROL:
                break
    return {"points": points, "tried": ended, "failed": failed}


def main(root: Path, wanted: int, how: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    if how == CONTROL:
        vars(files).update(creating_folder=removing_first, remove_folder=lambda path: None)
    found = {name: tried(SCENARIOS[name], root / name.replace(" ", "-"), wanted, how) for name in names}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
