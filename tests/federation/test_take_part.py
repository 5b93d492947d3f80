"""A device's part in a federation, from its page: what is asked, agreed, shown, paused and given up."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette", reason="needs the page extra")

from starlette.testclient import TestClient

from commands import is_running
from solera.core.errors import DeployError
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.outbox import BECAUSE
from solera.device.policy import Agreement
from solera.device.publish import start
from solera.federation.common import connection
from solera.federation.node import accepted as accepting
from solera.federation.node.accepted import accepted
from solera.federation.operate import node_process
from solera.federation.operate.inviting import invitation
from solera.federation.operate.processes import Process, free_port
from solera.service import taking_part
from solera.service.app import service
from solera.service.guard import Place
from solera.service.taking_part import NodeKeeper, _why

HOST, SECRET, FEDERATION = "127.0.0.1:8470", "secret", "a" * 64


@pytest.fixture
def folder(tmp_path, catalogue, key) -> Path:
    Device.create(tmp_path / "me", start("fedmf", catalogue, tmp_path / "b.bundle", key)).close()
    return tmp_path / "me"


@pytest.fixture
def page(folder):
    """The service as its page uses it."""
    headers = {"Authorization": f"Bearer {SECRET}"}
    with TestClient(service(folder, "me", SECRET, Place(HOST)), f"http://{HOST}", headers=headers) as client:
        yield client


@pytest.fixture
def link(keys) -> str:
    """An invitation to a server that does not answer."""
    server = f"127.0.0.1:{free_port()}"
    return invitation(keys, "new-1", server, "fi\u202elms", Agreement()).link()


def shown(page: TestClient, until: str) -> dict:
    end = time.monotonic() + 20
    while (found := page.get("/page/part").json())["node"] != until:
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def test_an_invitation_is_read_before_anything_is_kept(page, folder, link):
    assert page.put("/page/policy", json={"allow_plain": False}).status_code == 200
    asked = page.post("/page/invitation", json={"text": f"  {link}\n"}).json()
    assert (asked["federation"], asked["server"][:10]) == ("films", "127.0.0.1:")  # nothing changes the order
    assert asked["asks"][0].startswith("The server sees what your device uploads.")
    assert asked["declines"] == ["your policy allows only masked rounds"]
    assert "PRIVATE" not in str(asked)
    assert accepted(folder) is None
    assert page.get("/page/part").json() == {
        "missing": None,
        "accepted": None,
        "node": "off",
        "problem": None,
    }


@pytest.mark.parametrize("text", ["", "hello", "solera-invitation:!", '{"version": 1}'])
def test_what_is_no_invitation_is_refused(page, folder, text):
    for verb in (page.post, page.put):
        answer = verb("/page/invitation", json={"text": text})
        assert answer.status_code == 400
        assert "invitation" in answer.json()["error"]
    assert accepted(folder) is None


def test_a_signer_that_is_none_leaves_no_files(page, folder, keys, link):
    made = invitation(keys, "new-1", "127.0.0.1:9", "films", Agreement(masked=True))
    text = made.model_copy(update={"roster_key": "no key"}).model_dump_json()
    assert page.put("/page/invitation", json={"text": text}).status_code == 400
    assert not (folder / "federation").exists()
    assert page.get("/page/part").json()["node"] == "off"


def test_agreeing_waits_for_the_server_and_leaving_removes_the_key(page, folder, link):
    assert page.put("/page/invitation", json={"text": link}).json()["accepted"]["federation"] == "films"
    found = shown(page, "waiting")
    assert found["problem"]["error"].startswith("no server answers")
    assert (found["messages"], found["uploads"], found["declined"]) == (0, 0, None)
    assert accepted(folder).key.stat().st_mode & 0o077 == 0
    assert page.put("/page/part", json={"do": "stop"}).json()["node"] == "off"
    assert page.put("/page/part", json={"do": "start"}).json()["node"] != "off"
    device = Device.open(folder)
    assert Ledger(device.store).asked(FEDERATION, Agreement()) == "joined"  # it holds for who asks next
    left = page.delete("/page/invitation").json()
    assert (left["accepted"], left["node"]) == (None, "off")
    assert not (folder / "federation").exists()
    assert Ledger(device.store).standing(FEDERATION) == "left"
    assert page.put("/page/part", json={"do": "start"}).json()["node"] == "off"
    device.close()


def test_leaving_before_anybody_asked_takes_the_agreement_back(page, folder, link):
    page.put("/page/invitation", json={"text": link})
    page.delete("/page/invitation")
    device = Device.open(folder)
    assert Ledger(device.store).asked(FEDERATION, Agreement()) == "asked"
    device.close()


def test_a_second_federation_has_to_wait_for_the_page(page, folder, foreign_keys, link):
    page.put("/page/invitation", json={"text": link})
    other = invitation(foreign_keys, "new-1", "elsewhere.example.org:8000", "books", Agreement())
    answer = page.put("/page/invitation", json={"text": other.link()})
    assert answer.status_code == 400
    assert "takes part in" in answer.json()["error"]
    assert accepted(folder).invitation.server.startswith("127.0.0.1")


def test_pausing_and_what_has_left(page, folder, link):
    page.put("/page/invitation", json={"text": link})
    device = Device.open(folder)
    ledger = Ledger(device.store)
    ledger.asked(FEDERATION, Agreement())
    device.sent({"slots": [1]}, b"x", round_=-1, steps=(), kind="enrol", federation=FEDERATION)
    device.sent({"rows": [7]}, b"x", round_=4, steps=(), kind="train", federation=FEDERATION)
    found = page.get("/page/part").json()
    assert {name: found[name] for name in ("messages", "uploads", "round", "declined")} == {
        "messages": 2,
        "uploads": 1,
        "round": 4,
        "declined": None,
    }
    assert (found["joined"], found["paused"]) == (True, False)
    paused = page.put("/page/part", json={"do": "pause"}).json()
    assert (paused["joined"], paused["paused"]) == (False, True)
    assert ledger.standing(FEDERATION) == "paused"
    reason = (f"{BECAUSE}the owner has paused",)
    device.sent({}, b"x", round_=-1, steps=reason, kind="declined", federation=FEDERATION)
    assert page.get("/page/part").json()["declined"] == "the owner has paused"
    assert device.outbox()[-1]["told"].endswith("what the server asked for: the owner has paused")
    page.put("/page/part", json={"do": "go on"})
    assert ledger.standing(FEDERATION) == "joined"
    device.close()


def test_what_left_before_the_invitation_does_not_count(page, folder, link):
    device = Device.open(folder)
    device.sent({}, b"x", round_=1, steps=(f"{BECAUSE}an old one",), kind="declined")
    with device.store.writing() as connection:
        connection.execute("UPDATE outbox SET time = time - 100")
    page.put("/page/invitation", json={"text": link})
    found = page.get("/page/part").json()
    assert (found["messages"], found["declined"], found["time"]) == (0, None, None)
    device.close()


def test_the_node_starts_with_the_service_until_it_is_stopped(folder, link):
    headers = {"Authorization": f"Bearer {SECRET}"}
    seen = []
    for do in ("agree", "look", "stop", "look"):
        with TestClient(
            service(folder, "me", SECRET, Place(HOST)), f"http://{HOST}", headers=headers
        ) as client:
            seen.append(client.get("/page/part").json()["node"] != "off")
            if do == "agree":
                client.put("/page/invitation", json={"text": link})
            elif do == "stop":
                client.put("/page/part", json={"do": "stop"})
    assert seen == [False, True, True, False]


@pytest.mark.attack
def test_strangers_can_neither_read_nor_change_the_part(page, folder, link):
    for verb, path in (
        ("GET", "/page/part"),
        ("PUT", "/page/part"),
        ("POST", "/page/invitation"),
        ("PUT", "/page/invitation"),
        ("DELETE", "/page/invitation"),
    ):
        body = None if verb in ("GET", "DELETE") else {"text": link, "do": "start"}
        for headers, status in (
            ({"Authorization": "Bearer other"}, 401),
            ({"Origin": "http://evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Host": "evil.example:8470"}, 421),
        ):
            answer = page.request(verb, path, json=body, headers=headers)
            assert answer.status_code == status, (verb, path, headers)
    assert accepted(folder) is None


def test_a_long_list_of_nodes_is_taken_and_more_is_not(page):
    assert "not an invitation" in page.post("/page/invitation", json={"text": "x" * 900_000}).json()["error"]
    assert page.post("/page/invitation", json={"text": "x" * 1_000_001}).status_code == 400
    assert page.post("/page/invitation", json={"text": "x" * (1 << 21)}).status_code == 413


def test_without_the_extra_the_page_says_what_installs_it(folder, link, monkeypatch):
    monkeypatch.setitem(sys.modules, "stamina", None)
    headers = {"Authorization": f"Bearer {SECRET}"}
    with TestClient(service(folder, "me", SECRET, Place(HOST)), f"http://{HOST}", headers=headers) as client:
        found = client.get("/page/part").json()
        assert (found["missing"]["next"], found["accepted"]) == ("pip install 'solera[node]'", None)
        refusals = [
            client.post("/page/invitation", json={"text": link}),
            client.put("/page/invitation", json={"text": link}),
            client.delete("/page/invitation"),
        ]
    assert {(each.status_code, each.json()["next"]) for each in refusals} == {
        (400, "pip install 'solera[node]'")
    }


def test_a_device_has_one_node(folder, monkeypatch):
    monkeypatch.setattr(node_process, "_LEAVING", 0.0)
    with (
        node_process.alone(folder),
        pytest.raises(DeployError, match="another program runs the node"),
        node_process.alone(folder),
    ):
        pass


@pytest.mark.parametrize(
    ("said", "message", "silent"),
    [
        ("error: the server does not know the key\nnext: register it", "does not know the key", False),
        ("error: no server answers at a:1: refused\nnext: wait", "no server answers", True),
        ("Traceback", "the node has ended", False),
    ],
)
def test_why_a_node_has_ended(tmp_path, said, message, silent):
    process = Process([sys.executable, "-c", f"print({said!r})"], {}, tmp_path / "log")
    process._popen.wait(20)
    found = _why(process)
    assert message in found.message
    assert isinstance(found, connection.SilenceError) is silent


@pytest.fixture
def fake_node(tmp_path, monkeypatch) -> Path:
    """A file whose text says what `solera node start` does in its place."""
    program = tmp_path / "node.sh"
    program.write_text(f"#!/bin/sh\n. {tmp_path}/does\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(accepting, "accepted", lambda folder: SimpleNamespace(address=None))
    monkeypatch.setattr(connection, "check", lambda address: None)
    monkeypatch.setattr(taking_part, "_ENDED", 0.1)
    return tmp_path / "does"


async def reached(keeper: NodeKeeper, state: str) -> None:
    end = time.monotonic() + 20
    while keeper.status.state != state:
        assert time.monotonic() < end, keeper.status
        await asyncio.sleep(0.01)


def test_a_node_that_ends_is_started_again_and_stopping_ends_it(tmp_path, fake_node):
    async def follow() -> None:
        fake_node.write_text("echo 'error: the server does not know the key' >&2; exit 2\n")
        keeper = NodeKeeper(tmp_path)
        keeper.start()
        await reached(keeper, "failed")
        assert keeper.status.problem.message == "the server does not know the key"
        fake_node.write_text(
            f"echo $$ > {tmp_path}/pid; echo 'node 7 takes part; Ctrl-C ends it'; sleep 60\n"
        )
        await reached(keeper, "connected")
        keeper.start()  # again changes nothing
        pid = int((tmp_path / "pid").read_text())
        assert is_running(pid)
        await keeper.stop()
        assert keeper.status.state == "off"
        assert not is_running(pid)

    asyncio.run(follow())


def test_a_server_that_falls_silent_is_waited_for(tmp_path, fake_node, monkeypatch):
    answers: list[bool] = [True]

    def check(address: None) -> None:
        if not answers[-1]:
            raise connection.SilenceError("no server answers")

    async def follow() -> None:
        fake_node.write_text("echo 'node 7 takes part; Ctrl-C ends it'; sleep 60\n")
        keeper = NodeKeeper(tmp_path)
        keeper.start()
        await reached(keeper, "connected")
        answers.append(False)
        await reached(keeper, "waiting")
        answers.append(True)
        await reached(keeper, "connected")
        await keeper.stop()

    monkeypatch.setattr(connection, "check", check)
    monkeypatch.setattr(taking_part, "_ASK", 0.0)
    asyncio.run(follow())
