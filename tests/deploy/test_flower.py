"""Command lines, the files Flower reads, and what stands between it and the operator."""

from __future__ import annotations

import json
import shlex
import sys
import time
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from commands import below, environment, is_running
from in_process import solera
from solera.core.errors import ConfigError, DeployError
from solera.deploy.common import flower
from solera.deploy.common.credential import read_token, write_token
from solera.deploy.common.address import Address
from solera.deploy.operate import reachability, superlink
from solera.deploy.operate.processes import Process, free_port
from solera.deploy.operate.submit import History


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("example.org:8000", "example.org", 8000), ("127.0.0.1:1", "127.0.0.1", 1), ("[::1]:9", "::1", 9)],
)
def test_addresses(text: str, host: str, port: int):
    assert (Address.parse(text).host, Address.parse(text).port) == (host, port)
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize("text", ["example.org", ":8000", "example.org:", "example.org:http", "a:70000"])
def test_what_is_no_address(text: str):
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        Address.parse(text)


def test_a_server_is_called_with_tls_and_node_keys_unless_told_otherwise(tmp_path):
    keys = tmp_path / "keys"
    line = flower.superlink(tmp_path, Address("0.0.0.0", 8001, keys / "ca.pem"), keys)
    assert "--enable-supernode-auth" in line
    assert "--insecure" not in line
    options = dict(pairwise(line))
    assert options["--superexec-auth-secret-file"] == str(tmp_path / "control.token")
    assert options["--isolation"] == "process"  # with "subprocess", Flower ignores the secret
    assert options["--ssl-certfile"] == str(keys / "server.pem")
    assert options["--ssl-keyfile"] == str(keys / "server.key")
    assert (options["--host"], options["--port"]) == ("0.0.0.0", "8001")
    assert "--disable-runtime-dependency-installation" in line
    open_ = flower.superlink(tmp_path, Address(), None)
    assert open_[-1] == "--insecure"
    assert "--superexec-auth-secret-file" in open_
    assert not {"--enable-supernode-auth", "--ssl-certfile"} & set(open_)


def test_a_node_is_told_its_device(tmp_path):
    device = tmp_path / "my device"
    line = flower.supernode(device, Address("h", 1, Path("ca.pem")), Path("node-1"), 9)
    assert line[line.index("--node-config") + 1] == f'device="{device}"'
    assert line[line.index("--auth-supernode-private-key") + 1] == "node-1"
    assert "--insecure" in flower.supernode(device, Address("h", 1), None, 9)
    with pytest.raises(ConfigError, match="a quote"):
        flower.supernode(tmp_path / 'a"b', Address("h", 1), None, 9)


def test_flower_reports_to_nobody(tmp_path):
    variables = flower.environment(tmp_path)
    assert variables["FLWR_TELEMETRY_ENABLED"] == variables["RAY_USAGE_STATS_ENABLED"] == "0"
    assert variables["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert variables["FLWR_HOME"] == str(tmp_path)


def test_flower_opens_no_ports_that_nothing_guards(tmp_path, monkeypatch):
    names = ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API")
    for name in names:
        monkeypatch.setenv(name, "1")
    assert [flower.environment(tmp_path)[name] for name in names] == ["0", "0"]


def test_the_address_is_noted_for_later_commands(tmp_path):
    with pytest.raises(DeployError, match="no server has been started"):
        flower.read_address(tmp_path)
    for address in (Address("::1", 8001, tmp_path / "ca.pem"), Address("127.0.0.1", 8002)):
        flower.write_address(flower.home_of(tmp_path), address)
        assert flower.read_address(tmp_path) == address
    assert str(Address("0.0.0.0", 5).from_here()) == "127.0.0.1:5"


def test_the_app_is_one_flower_takes(tmp_path):
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    app = flower.write_app(tmp_path, "failing_app:server", "some_app:client")
    config, warnings = load_and_validate(app / "pyproject.toml")
    assert warnings == []
    assert config["tool"]["flwr"]["app"]["config"] == {"folder": ""}
    assert config["tool"]["flwr"]["app"]["publisher"] == "solera"
    assert "from failing_app import server" in (app / "solera_server.py").read_text()
    assert len(build_fab_from_disk(app)) < 10_000


def test_shown_commands_can_be_pasted_and_start_nothing(tmp_path, keys):
    folder = tmp_path / "my films"
    shown = solera("server", "start", folder, "--keys", keys, "--show-commands").stdout.splitlines()
    assert len(shown) == 3  # the server, and its two nodes' keys
    words = shlex.split(shown[0])
    assert "FLWR_TELEMETRY_ENABLED=0" in words
    assert f"FLWR_HOME={folder}/flower" in words
    assert words[words.index("--database") + 1] == f"{folder}/flower/state.db"
    assert shlex.split(shown[1])[-4:] == [
        "supernode",
        "register",
        str(keys / "nodes/node-1.pub"),
        "federation",
    ]
    access = ("--ca", keys / "ca.pem", "--key", keys / "nodes/node-1")
    given = ("--server", "h:8000", *access, "--show-commands")
    node = solera("node", "start", tmp_path / "d", *given)
    assert "solera.deploy.operate.serving" in shlex.split(node.stdout)
    run = solera("federation", "run", folder, "--show-commands")
    assert f'folder="{folder}"' in shlex.split(run.stdout)
    written = {path.name for path in folder.rglob("*") if path.is_file()}
    assert written == {
        "config.toml",
        "control.token",
        "credentials.yaml",
        "pyproject.toml",
        "solera_server.py",
        "solera_client.py",
    }
    assert list(tmp_path.iterdir()) == [folder]


def test_showing_commands_keeps_the_token_of_a_server_that_may_be_running(tmp_path, keys):
    address = Address("127.0.0.1", 8000, keys / "ca.pem")
    superlink.commands(tmp_path, address, keys)
    token = read_token(flower.home_of(tmp_path))
    superlink.commands(tmp_path, address, keys)
    assert read_token(flower.home_of(tmp_path)) == token
    write_token(flower.home_of(tmp_path), str(address), new=True)
    assert read_token(flower.home_of(tmp_path)) != token
    (flower.home_of(tmp_path) / "control.token").unlink()
    with pytest.raises(DeployError, match="is missing"):
        read_token(flower.home_of(tmp_path))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("server", "start", "f"), "--keys is missing"),
        (("server", "start", "f", "--keys", "k", "--insecure"), "--keys and --insecure cannot be combined"),
        (("node", "start", "d", "--server", "h:1"), "either --ca and --key"),
        (("node", "start", "d", "--server", "h:1", "--ca", "c"), "either --ca and --key"),
        (("federation", "run", "no such folder"), "no server has been started"),
    ],
)
def test_wrong_use_is_two_lines(args, message):
    done = solera(*args)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert message in first
    assert second.startswith("next:")


@pytest.mark.parametrize(
    ("more", "ending"), [("start_new_session=True", "time.sleep(60)"), ("", "sys.exit()")]
)
def test_a_process_ends_with_children_that_left_its_session_and_with_orphans(tmp_path, more, ending):
    child = "import time; time.sleep(60)"
    code = (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}], {more}); {ending}"
    )
    process = Process([sys.executable, "-c", code], environment(), tmp_path / "log")
    until = time.monotonic() + 40
    while not (children := below(process.pid)) and time.monotonic() < until:
        time.sleep(0.02)
    if "exit" in ending:
        while process.is_running and time.monotonic() < until:
            time.sleep(0.02)
    assert len(children) == 1
    process.stop()
    assert not process.is_running
    assert not is_running(children[0])


def test_no_program_no_traceback(tmp_path):
    with pytest.raises(ConfigError, match="is not installed") as error:
        Process(["no-such-program"], {"PATH": ""}, tmp_path / "log")
    assert "solera[deploy]" in error.value.hint


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
        reachability.check(Address("127.0.0.1", free_port(), tmp_path / "ca.pem"))


def test_config_is_toml(tmp_path):
    flower.write_address(tmp_path, Address("h", 1, tmp_path / 'a "quoted" folder' / "ca.pem"))
    read = tomllib.loads((tmp_path / "config.toml").read_text())
    assert read["superlink"]["default"] == "federation"
    assert read["superlink"]["federation"]["root-certificates"].endswith('a "quoted" folder/ca.pem')
