"""Service units, the compose file and Prometheus' settings: what they call exists, and they are valid."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import jsonschema
import pytest
import yaml
from command_lines import check_command
from containers import wait_until
from engines import postgres

from commands import environment
from programs import program
from solera.core.errors import DeployError
from solera.federation.common import connection
from solera.federation.common.address import Address
from solera.federation.common.authority import make_keys
from solera.federation.operate.figures import nodes_of
from solera.federation.operate.processes import Process, free_port
from solera.federation.web.store import Blobs, Nodes

PACKAGING = Path(__file__).parents[2] / "packaging"
# schema/compose-spec.json of github.com/compose-spec/compose-spec, commit 170098ba, Apache-2.0
COMPOSE_SCHEMA = Path(__file__).parent / "compose-spec.json"
UNITS = sorted([*PACKAGING.glob("*.service"), *PACKAGING.glob("*.timer")])


@pytest.mark.parametrize("unit", [each for each in UNITS if each.suffix == ".service"], ids=lambda p: p.name)
def test_units_call_commands_that_exist(unit):
    lines = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    assert len(lines) == 1
    words = shlex.split(lines[0].removeprefix("ExecStart="))
    if words[0] == "/bin/sh":
        words = shlex.split(words[2].removeprefix("exec "))
    assert words.pop(0) == "/opt/solera/bin/solera"
    check_command(words)


def verify(folder: Path) -> str:
    files = sorted(map(str, folder.iterdir()))
    done = subprocess.run(
        ["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path):
    """With programs and a user that exist here; a misspelt key is noticed."""
    for unit in UNITS:
        text = unit.read_text().replace("/opt/solera/bin/solera", "/bin/true")
        (tmp_path / unit.name).write_text(text.replace("User=solera", "User=root"))
    assert verify(tmp_path) == ""
    wrong = tmp_path / "solera-serve.service"
    wrong.write_text(wrong.read_text().replace("KillMode=", "KilMode="))
    assert "KilMode" in verify(tmp_path)


def test_the_compose_file_is_one():
    """By the schema of compose files; a misspelt key is noticed."""
    schema = jsonschema.Draft7Validator(json.loads(COMPOSE_SCHEMA.read_text()))
    found = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
    schema.validate(found)
    found["services"]["server"]["restrat"] = "always"
    with pytest.raises(jsonschema.ValidationError, match="restrat"):
        schema.validate(found)


def test_the_compose_file_calls_commands_and_names_files_that_exist():
    found = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
    services = found["services"]
    for service in services.values():
        if service["image"] == "solera" and "entrypoint" not in service:
            check_command(list(service["command"]))
        network = service.get("network_mode", "none").removeprefix("service:")
        assert {network, *service.get("depends_on", ())} - {"none"} <= services.keys()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (PACKAGING / source).exists(), source
            elif not source.startswith("../"):
                assert source in found["volumes"], source


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (apt-get install prometheus)")
def test_prometheus_takes_its_settings_and_rules():
    config = PACKAGING / "monitoring" / "prometheus.yml"
    command = ["promtool", "check", "config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "12 rules found" in done.stdout


@pytest.fixture
def services():
    return yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]


def test_containers_get_the_keys_that_they_need(services):
    """Single files, and a folder with public keys alone. The keys of authority and roster stay outside."""
    mounted = {
        name: {volume.split(":")[0] for volume in service.get("volumes", ()) if volume.startswith("../")}
        for name, service in services.items()
    }
    server = {f"../keys/{name}" for name in ("ca.pem", "server.pem", "server.key")}
    assert mounted == {
        "network": set(),
        "database": set(),
        "server": {*server, "../nodes"},
        "nginx": server - {"../keys/ca.pem"},
        "serve": {"../keys/ca.pem", "../settings"},
        "prometheus": set(),
    }
    volumes = [volume for service in services.values() for volume in service.get("volumes", ())]
    writable = [volume for volume in volumes if volume.startswith(".") and not volume.endswith(":ro")]
    assert writable == ["../nodes:/keys/nodes"]  # the server adds the keys of invited households
    assert "cp keys/nodes/*.pub nodes/" in (PACKAGING / "compose.yaml").read_text()


def test_the_database_can_be_reached_by_its_socket_alone(services):
    database = services["database"]
    assert database["network_mode"] == "none"
    assert "listen_addresses=" in database["command"]
    with_socket = {
        n for n, s in services.items() if "database-socket:/run/postgresql" in s.get("volumes", ())
    }
    assert with_socket == {"database", "server", "serve"}


@pytest.mark.slow
@pytest.mark.xdist_group("real")
def test_what_the_compose_file_starts_finds_each_other(tmp_path, services):
    """The same commands and files with other paths, and PostgreSQL and nginx of this machine."""
    port, socket, folder = free_port(), tmp_path / "run" / "server.sock", tmp_path / "data" / "films"
    keys = tmp_path / "keys"
    make_keys(keys, 1)
    for each in ("run", "data", "nginx"):
        (tmp_path / each).mkdir()
    with ExitStack() as stack:
        database = stack.enter_context(postgres())
        url = services["server"]["environment"]["SOLERA_DATABASE"]
        assert url == "postgresql://solera@/solera?host=/run/postgresql"
        url = f"postgresql://solera@/postgres?host={database.root}&port={database.port}"
        command = [sys.executable, "-m", "solera", *services["server"]["command"], "--port", str(port)]
        places = (("/data", tmp_path / "data"), ("/keys", keys), ("/run/solera", tmp_path / "run"))
        for inside, here in places:
            command = [re.sub(rf"^{inside}(?=/|$)", str(here), word) for word in command]
        command[command.index("9464")] = str(free_port())
        variables = {**environment(), "SOLERA_DATABASE": url}
        server = Process(command, variables, tmp_path / "server.log")
        stack.callback(server.stop)
        while "nodes are online" not in server.said():
            assert server.is_running, server.said()
            time.sleep(0.1)

        # and nginx, by the whole of its settings
        for name in ("nginx.conf", "solera.conf", "solera_proxy.conf"):
            text = (PACKAGING / "nginx" / name).read_text()
            for inside, here in (
                ("/tmp/", f"{tmp_path}/nginx/"),
                ("/run/solera/", f"{tmp_path}/run/"),
                ("/etc/solera/keys", str(keys)),
                ("/var/lib/solera", f"{tmp_path}/data"),
                ("listen 8000", f"listen 127.0.0.1:{port}"),
                ("listen [::]:8000 ssl;", ""),
            ):
                text = text.replace(inside, here)
            (tmp_path / "nginx" / name).write_text(("user root;\n" if name == "nginx.conf" else "") + text)
        assert socket.is_socket()
        words = [
            each.replace("/etc/nginx/solera", f"{tmp_path}/nginx") for each in services["nginx"]["entrypoint"]
        ]
        nginx = Process(words, dict(os.environ), tmp_path / "nginx.log")
        stack.callback(nginx.stop)
        address = Address("127.0.0.1", port, keys / "ca.pem")
        wait_until(lambda: answers(address), 20)
        assert nodes_of(folder) == Nodes(registered=1, online=0)  # as `status` in the coordinator's container
        name = Blobs(folder).put(b"a model")
        context = ssl.create_default_context(cafile=keys / "ca.pem")
        with urlopen(f"{address.url}/v1/blob/{name}", context=context) as answer:
            assert answer.read() == b"a model"
            assert answer.headers["server"].startswith("nginx")


def answers(address: Address) -> bool:
    try:
        connection.check(address)
    except DeployError:
        return False
    return True


def test_containers_have_no_rights(services):
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert service["tmpfs"] == ["/tmp"], name
        assert "privileged" not in service, name
        assert "cap_add" not in service, name


def test_images_have_versions(services):
    """Or the name of a release. The images that are built here have none."""
    files = (PACKAGING / name for name in ("Containerfile", "device.Containerfile"))
    bases = {re.findall(r"^ARG BASE=(\S+)$", file.read_text(), re.M)[0] for file in files}
    for image in {service["image"] for service in services.values()} - {"solera"} | bases:
        _, _, tag = image.rpartition("/")[2].partition(":")
        assert re.search(r"\d+\.\d+|bookworm", tag), image


@pytest.mark.parametrize(
    ("image", "least", "installs"),
    [("requirements.txt", 50, 3), ("device-requirements.txt", 20, 2)],
)
def test_an_image_has_the_packages_of_the_lock(image, least, installs):
    """Each with its hashes. PyTorch comes from its own index, and nothing else comes without a hash."""
    text = (PACKAGING / image).read_text(encoding="utf-8")
    packages = re.split(r"\n(?=\S)", text.strip())[1:]
    assert len(packages) > least
    assert all(re.match(r"[a-z0-9-]+==\S+", each) and "--hash=sha256:" in each for each in packages)
    assert not re.search(r"^(torch|nvidia|cuda|triton)\b", text, re.M)
    file = PACKAGING / image.replace("requirements.txt", "Containerfile").replace("-", ".")
    found = re.findall(r"pip install (.*)", file.read_text().replace("\\\n", ""))
    assert len(found) == installs
    assert all("--no-deps" in each for each in found)
    assert f"--require-hashes -r /source/{image}" in found[0]


@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")
def test_the_requirements_of_the_images_are_up_to_date():
    made = program("packaging/image_requirements")
    for file, extras in made.FILES.items():
        assert file.read_text(encoding="utf-8") == made.requirements(extras), file
