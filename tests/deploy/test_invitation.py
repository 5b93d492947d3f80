"""Invitations: made from keys, sent as file or link, read before anybody agrees, accepted and given up."""

from __future__ import annotations

import base64
import json
import stat
import zlib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the deploy extra")

from device_commands import run, run_json
from solera.core.errors import ConfigError, DeployError
from solera.deploy.common.authority import make_keys
from solera.deploy.common.invitation import SCHEME, Asked, Invitation
from solera.deploy.node.accepted import accept, accepted, conflicts, leave
from solera.deploy.operate.inviting import invitation, write_qr
from solera.deploy.secure.roster import ROSTER, make_roster
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Policy

SERVER = "recommender.example.org:8000"
PLAIN = Asked(masked=False)
SMALL = {"embedding_size": 4}


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("invited") / "keys"
    make_keys(folder, 3)
    (folder / ROSTER).write_text(make_roster(folder, folder / ROSTER).model_dump_json())
    return folder


@pytest.fixture
def made(keys) -> Invitation:
    return invitation(keys, "node-2", SERVER, "films", Asked(masked=True, least_nodes=20, epsilon=8))


@pytest.fixture
def device(local) -> Device:
    found: Device = local("fedmf", SMALL).devices[100]
    Ledger(found.store).join_next(False)
    return found


def test_a_link_and_a_file_hold_the_same(made, tmp_path):
    link = made.link()
    assert link.startswith(SCHEME)
    assert Invitation.read(link) == made
    (tmp_path / "a").write_text(made.model_dump_json(indent=2))
    assert Invitation.read(str(tmp_path / "a")) == made
    assert "PRIVATE KEY" in made.key
    assert (str(made.address), made.node) == (SERVER, "node-2")


def test_it_says_what_is_asked():
    words = list(Asked(masked=True, least_nodes=20, epsilon=8).sentences())
    assert words == [
        "Your upload is hidden in a sum over at least 20 devices.",
        "Noise is added to what is learned: ε = 8 over all rounds.",
    ]
    assert "The server sees what your device uploads." in next(PLAIN.sentences())


def test_what_the_policy_forbids():
    assert conflicts(PLAIN, Policy()) == []
    assert conflicts(PLAIN, Policy(allow_plain=False)) == ["your policy allows only masked rounds"]
    few = Asked(masked=True, least_nodes=3)
    assert conflicts(few, Policy()) == ["your policy asks for sums over at least 10 devices, not 3"]
    assert conflicts(few, Policy(least_nodes=3)) == []
    noisy = Asked(masked=True, least_nodes=20, epsilon=8)
    assert conflicts(noisy, Policy(epsilon=8)) == []
    assert conflicts(noisy, Policy(epsilon=4)) == ["your policy allows ε of 4 at most, not ε = 8"]
    assert conflicts(few, Policy(least_nodes=3, total_epsilon=1)) == [
        "your policy allows ε of 1 at most, not no noise"
    ]


def test_accepting_keeps_files_that_others_cannot_read(made, device):
    kept = accept(device, made)
    assert accepted(device.path) == kept
    assert kept.key.read_text() == made.key
    assert (kept.address.host, kept.address.ca) == ("recommender.example.org", kept.ca.resolve())
    for path in (kept.folder, *kept.folder.iterdir()):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert made.key not in (kept.folder / "invitation.json").read_text()
    accept(device, made)  # again changes nothing
    leave(device)
    assert not kept.folder.exists()
    assert accepted(device.path) is None
    leave(device)  # again changes nothing


def test_whoever_has_left_takes_part_again_by_accepting_and_by_nothing_else(local, keys):
    federation = local("fedmf", SMALL)
    device, name = federation.devices[100], federation.coordinator.identity.federation
    ledger, invited = Ledger(device.store), invitation(keys, "node-2", SERVER, "films", PLAIN)
    accept(device, invited)
    assert federation.round()["nodes"] == 3
    accept(device, invited)
    assert not ledger.joins_next  # it takes part already: no yes is left for somebody else
    leave(device)
    assert [federation.round()["nodes"] for _ in range(3)] == [2, 2, 2]
    assert ledger.standing(name) == "left"
    accept(device, invited)
    federation.run(rounds=1)
    assert federation.round()["nodes"] == 3
    assert ledger.standing(name) == "joined"
    assert not ledger.joins_next


@pytest.mark.parametrize("change", ["leave", "pause"])
def test_a_yes_that_nobody_has_used_is_taken_back(device, made, change):
    ledger = Ledger(device.store)
    ledger.asked("f" * 32, {})
    accept(device, made)
    getattr(ledger, change)("f" * 32)
    assert not ledger.joins_next
    ledger.join_next()
    leave(device)
    assert not ledger.joins_next


def test_a_second_federation_has_to_wait(made, keys, device):
    accept(device, made)
    other = invitation(keys, "node-3", "elsewhere.example.org:8000", "books", PLAIN)
    with pytest.raises(DeployError, match="takes part in 'films'"):
        accept(device, other)
    assert accepted(device.path).terms.federation == "films"


def test_a_changed_roster_or_key_is_refused(made, device):
    signed = json.loads(made.roster)
    signed["nodes"]["node-4"] = signed["nodes"].pop("node-3")
    for wrong in ({"roster": json.dumps(signed)}, {"key": "no key"}):
        with pytest.raises(DeployError):
            accept(device, made.model_copy(update=wrong))
        assert accepted(device.path) is None


def broken() -> list[str]:
    bomb = base64.urlsafe_b64encode(zlib.compress(b" " * 50_000_000)).decode().rstrip("=")
    half = base64.urlsafe_b64encode(zlib.compress(b'{"version": 1}')[:-3]).decode()
    return [SCHEME + "!", SCHEME, SCHEME + bomb, SCHEME + half, "{}", '{"version": 2}', ""]


@pytest.mark.parametrize("text", broken(), ids=str.__len__)
def test_what_is_no_invitation(text):
    with pytest.raises(DeployError):
        Invitation.parse(text)


def test_a_node_without_key_or_listing(keys):
    with pytest.raises(DeployError, match="node-9 cannot be read"):
        invitation(keys, "node-9", SERVER, "films", PLAIN)
    with pytest.raises(DeployError, match="does not have node-9"):
        invitation(keys, "node-9", SERVER, "films", Asked(masked=True))
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        invitation(keys, "node-1", "example.org", "films", PLAIN)


def test_qr_code(keys, made, tmp_path):
    pytest.importorskip("segno")
    write_qr(invitation(keys, "node-1", SERVER, "films", PLAIN).link(), tmp_path / "a.svg")
    assert "<svg" in (tmp_path / "a.svg").read_text()
    with pytest.raises(ConfigError, match="too long"):
        write_qr(made.link() + "A" * 3000, tmp_path / "b.svg")
    with pytest.raises(ConfigError, match="neither"):
        write_qr("a", tmp_path / "b.gif")


def test_the_commands(keys, tmp_path):
    (tmp_path / "items.csv").write_text("id,title\na,Alien\nb,Brazil\n")
    run("bundle", "keygen", "-o", tmp_path / "p")
    run(
        "bundle",
        "new",
        "fedmf",
        "--catalogue",
        tmp_path / "items.csv",
        "-o",
        tmp_path / "b",
        "--key",
        f"{tmp_path}/p.key",
    )
    run("device", "init", tmp_path / "me", "--bundle", tmp_path / "b", "--key", f"{tmp_path}/p.pub")
    with pytest.raises(ConfigError, match="accepted no invitation"):
        run("node", "start", tmp_path / "me")
    invited = run_json("federation", "invite", keys, "node-1", "--server", SERVER, "-o", tmp_path / "i")
    assert "nothing was changed" in run("node", "accept", tmp_path / "me", tmp_path / "i", answers="n\n")
    assert accepted(tmp_path / "me") is None
    said = run("node", "accept", tmp_path / "me", invited["link"], answers="y\n")
    assert "The server sees what your device uploads." in said
    assert accepted(tmp_path / "me").terms.server == SERVER
    lines = run("node", "start", tmp_path / "me", "--show-commands")
    assert SERVER in lines and str(tmp_path / "me" / "federation" / "ca.pem") in lines
    assert run_json("node", "leave", tmp_path / "me")["server"] == SERVER
    opened = Device.open(tmp_path / "me")
    assert not Ledger(opened.store).joins_next
    opened.close()
    with pytest.raises(DeployError, match="no invitation"):
        run("node", "leave", tmp_path / "me")
