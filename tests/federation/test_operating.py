"""Addresses, where a server is noted to be, and what the operator's commands say of wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from in_process import solera
from solera.core.errors import ConfigError, DeployError
from solera.federation.common import connection
from solera.federation.common.address import Address, tag_of
from solera.federation.operate.processes import free_port
from solera.federation.operate.serve import History
from solera.federation.web.database import Place


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:8000", "127.0.0.1", 8000), ("h.example.org:1", "h.example.org", 1), ("[::1]:80", "::1", 80)],
)
def test_addresses(text: str, host: str, port: int):
    assert (Address.parse(text).host, Address.parse(text).port) == (host, port)
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize("text", ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h\r\nx:1", "a b:1", "-é:1"])
def test_what_is_no_address(text: str):
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        Address.parse(text)


def test_where_the_server_is_noted_for_later_commands(tmp_path):
    with pytest.raises(DeployError, match="no server has been started"):
        Place.read(tmp_path)
    place = Place(address="[::1]:8000", ca=tmp_path / "ca.pem", database="postgresql://u:secret@h/films")
    place.write(tmp_path)
    assert Place.read(tmp_path) == place
    assert place.server == Address("::1", 8000, tmp_path / "ca.pem")
    (file,) = (tmp_path / "network").iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_every_federation_has_a_tag_of_its_own(keys, foreign_keys):
    tags = {tag_of(folder and folder / "ca.pem") for folder in (keys, foreign_keys, None)}
    assert len(tags) == 3
    assert tag_of(keys / "ca.pem") in tags
    with pytest.raises(DeployError, match="cannot be read"):
        tag_of(Path("missing.pem"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("server", "start", "f"), "--keys is missing"),
        (("server", "start", "f", "--keys", "k", "--insecure"), "--keys and --insecure cannot be combined"),
        (("server", "start", "f", "--insecure", "--workers", "2"), "several workers need PostgreSQL"),
        (("node", "start", "d", "--server", "h:1"), "either --ca and --key"),
        (("node", "start", "d", "--server", "h:1", "--ca", "c"), "either --ca and --key"),
        (("federation", "run", "no such folder"), "no server has been started"),
        (("server", "register", "no such folder", "k.pub"), "k.pub"),
    ],
)
def test_wrong_use_is_two_lines(args, message):
    done = solera(*args)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert message in first
    assert second.startswith("next:")


def test_history_gives_every_whole_line_once(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"round": 1}\n')
    history = History(path)
    assert history.new() == []
    with path.open("a") as file:
        file.write('{"round": 2}\n{"rou')
        file.flush()
        assert history.new() == [{"round": 2}]
        file.write('nd": 3}\n')
    assert history.new() == [{"round": 3}]
    assert History(tmp_path / "none").new() == []


def test_keys_command(tmp_path):
    made = json.loads(solera("federation", "keys", tmp_path / "k", "--nodes", "1", "--json").stdout)
    assert str(tmp_path / "k/nodes/node-1.pub") in made["written"]
    again = solera("federation", "keys", tmp_path / "k", "--nodes", "1")
    assert again.stdout.splitlines()[0] == "all there already"


def test_a_file_that_is_no_authority(tmp_path):
    (tmp_path / "ca.pem").write_text("hello")
    with pytest.raises(DeployError, match="is not an authority's certificate"):
        connection.check(Address("127.0.0.1", free_port(), tmp_path / "ca.pem"))
