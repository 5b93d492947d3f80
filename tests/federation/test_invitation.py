"""Invitations: made from keys, sent as file or link, read before anybody agrees, accepted and given up."""

from __future__ import annotations

import base64
import json
import stat
import zlib
from pathlib import Path

import pytest

pytest.importorskip("alembic", reason="needs the extra server")

from in_process import run, run_json
from solera.core.errors import ConfigError, DeployError
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Agreement, Policy
from solera.federation.common.authority import make_keys, make_node_key, read_key
from solera.federation.common.invitation import SCHEME, Code, Invitation
from solera.federation.node.accepted import accept, accepted, leave
from solera.federation.operate.inviting import invitation, write_qr
from solera.federation.secure.roster import read_identity_key
from solera.federation.web.admission import Admission
from solera.privacy.identity import sign

SERVER = "recommender.example.org:8000"
PLAIN = Agreement()
MASKED = Agreement(masked=True, least_nodes=20, epsilon=8)
SMALL = {"embedding_size": 4}


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("invited") / "keys"
    make_keys(folder, 0)
    return folder


@pytest.fixture
def made(keys) -> Invitation:
    return invitation(keys, "node-2", SERVER, "films", MASKED)


@pytest.fixture
def device(local) -> Device:
    found: Device = local("fedmf", SMALL).devices[100]
    Ledger(found.store).join_next(False)
    return found


def test_a_link_and_a_file_hold_the_same(made, tmp_path):
    assert made.link().startswith(SCHEME)
    assert Invitation.parse(made.link()) == made
    (tmp_path / "a").write_text(made.model_dump_json(indent=2))
    assert Invitation.read(str(tmp_path / "a")) == made
    assert "PRIVATE" not in made.model_dump_json()
    assert (str(made.address), made.code.name) == (SERVER, "node-2")


def test_it_says_what_is_asked():
    assert Policy().sentences(MASKED) == [
        "Your upload is hidden in a sum over at least 20 devices and 10 people.",
        "Every device adds noise. Your device spends at most ε = 8 over all rounds.",
        "The server may not ask whether it ranks your items high.",
    ]
    assert Policy(least_nodes=30, epsilon=2).sentences(MASKED)[:2] == [
        "Your upload is hidden in a sum over at least 30 devices and 10 people.",
        "Every device adds noise. Your device spends at most ε = 2 over all rounds.",
    ]
    assert "at most 1 sum." in Policy().sentences(Agreement(masked=True))[1]
    assert "The server sees what your device uploads." in Policy().sentences(PLAIN)[0]
    assert "Your device cannot check that." in Policy().sentences(Agreement(epsilon=8))[1]
    assert "at most ε = 4 in all" in Policy().sentences(Agreement(evaluations=9))[-1]


def test_what_the_policy_forbids():
    assert Policy().conflicts(PLAIN) == []
    assert Policy(allow_plain=False).conflicts(PLAIN) == ["your policy allows only masked rounds"]
    few = Agreement(masked=True, least_nodes=3)
    assert Policy().conflicts(few) == ["your policy asks for sums over at least 10 devices, not 3"]
    assert Policy(least_nodes=3).conflicts(few) == []
    assert Policy(epsilon=8).conflicts(MASKED) == []
    assert Policy(epsilon=4).conflicts(MASKED) == ["your policy allows ε of 4 at most, not ε = 8"]
    assert Policy(least_nodes=3, total_epsilon=1).conflicts(few) == [
        "your policy allows ε of 1 at most, not no noise"
    ]
    many = Agreement(masked=True, sums=20, evaluations=9)
    assert Policy().conflicts(many) == [
        "your policy allows 1 sums without noise, not 20",
        "your policy allows evaluations of ε = 4 in all, not 9",
    ]


def test_accepting_makes_a_key_that_others_cannot_read(made, device, keys):
    kept = accept(device, made)
    assert accepted(device.path) == kept
    secret = kept.key.read_text()
    assert "PRIVATE KEY" in secret
    assert read_identity_key(kept.key)
    assert kept.public_key.read_text().endswith(" node-2\n")
    assert (kept.address.host, kept.address.ca) == ("recommender.example.org", kept.ca.resolve())
    for path in (kept.folder, *kept.folder.iterdir()):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077 or path == kept.public_key, path
    accept(device, made)  # again changes nothing
    assert kept.key.read_text() == secret
    assert not list((keys / "nodes").iterdir())
    leave(device)
    assert not kept.folder.exists()
    assert accepted(device.path) is None
    leave(device)  # again changes nothing


def test_a_code_lets_one_device_in_once_and_not_for_ever(keys, made, device, local, tmp_path):
    """The server keeps the first key that comes with a code, and refuses old and forged codes."""
    door = Admission(keys)

    def shown(key: Path, code: Code = made.code, secret: Path | None = None) -> bytes:
        proof = sign(read_identity_key(secret or key.with_suffix("")), code.challenge)
        told = {"code": code.model_dump(), "key": key.read_text(), "proof": base64.b64encode(proof).decode()}
        return json.dumps(told).encode()

    mine = accept(device, made).public_key
    make_node_key(tmp_path / "other", "other")
    for wrong in (
        made.code.model_copy(update={"name": "node-3"}),
        made.code.model_copy(update={"expires": made.code.expires + 1}),
        made.code.model_copy(update={"signature": "AAAA"}),
        made.code.model_copy(update={"signature": "?"}),
    ):
        with pytest.raises(DeployError, match="not the federation's"):
            door.admit(shown(mine, wrong))
    old = Code.new("node-7", -0.001, read_key(keys / "ca.key"))
    with pytest.raises(DeployError, match="has expired"):
        door.admit(shown(mine, old))
    for wrong in (b"", b"{}", shown(accepted(device.path).key)):
        with pytest.raises(DeployError, match="not the answer"):
            door.admit(wrong)
    with pytest.raises(DeployError, match="is not this device's"):
        door.admit(shown(mine, secret=tmp_path / "other"))
    assert not list((keys / "nodes").iterdir())
    door.admit(shown(mine))
    door.admit(shown(mine))  # a device that did not hear the answer asks again
    with pytest.raises(DeployError, match="was used already"):
        door.admit(shown(tmp_path / "other.pub"))
    assert [path.name for path in (keys / "nodes").glob("*.pub")] == ["node-2.pub"]
    assert (keys / "nodes" / "node-2.pub").read_bytes() == mine.read_bytes()
    with pytest.raises(DeployError, match="node-2 takes part already"):
        invitation(keys, "node-2", SERVER, "films", PLAIN)
    (keys / "nodes" / "node-2.pub").unlink()
    with pytest.raises(DeployError, match="was used already"):
        door.admit(shown(tmp_path / "other.pub"))  # the name is free again, and the code is not


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "x" * 65, "a\nb"])
def test_a_name_that_is_no_file_name(keys, name):
    with pytest.raises(DeployError):
        invitation(keys, name, SERVER, "films", PLAIN)


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
    ledger.asked("f" * 32, PLAIN)
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
    assert accepted(device.path).invitation.federation == "films"


def test_masks_without_a_signer_are_refused(made, device):
    text = made.model_copy(update={"roster_key": None}).model_dump_json()
    with pytest.raises(DeployError, match="does not say who signs"):
        Invitation.parse(text)
    with pytest.raises(DeployError, match="not the public key"):
        accept(device, made.model_copy(update={"roster_key": "no key"}))
    assert accepted(device.path) is None


def broken() -> list[str]:
    bomb = base64.urlsafe_b64encode(zlib.compress(b" " * 50_000_000)).decode().rstrip("=")
    half = base64.urlsafe_b64encode(zlib.compress(b'{"version": 1}')[:-3]).decode()
    return [SCHEME + "!", SCHEME, SCHEME + bomb, SCHEME + half, "{}", '{"version": 1}', '{"version": 2}', ""]


@pytest.mark.parametrize("text", broken(), ids=str.__len__)
def test_what_is_no_invitation(text):
    with pytest.raises(DeployError):
        Invitation.parse(text)


def test_a_wrong_address(keys):
    for wrong in ("example.org", "evil\r\nX: y:80", " a b:80", "user@host:80"):
        with pytest.raises(ConfigError, match="not HOST:PORT"):
            invitation(keys, "node-1", wrong, "films", PLAIN)


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
    assert "nothing was changed" in run("device", "join", tmp_path / "me", tmp_path / "i", answers="n\n")
    assert accepted(tmp_path / "me") is None
    with pytest.raises(DeployError, match="command line can be read by other users"):
        run("device", "join", tmp_path / "me", invited["link"])
    said = run("device", "join", tmp_path / "me", answers=f"{invited['link']}\ny\n")
    assert "The server sees what your device uploads." in said
    assert accepted(tmp_path / "me").invitation.server == SERVER
    assert run_json("device", "leave", tmp_path / "me")["server"] == SERVER
    opened = Device.open(tmp_path / "me")
    assert not Ledger(opened.store).joins_next
    opened.close()
    with pytest.raises(ConfigError, match="no invitation"):
        run("device", "leave", tmp_path / "me")
