"""Flower's programs as Solera calls them: command lines, environment, and the files they read.

All of Flower's files of a federation are in FOLDER/flower. config.toml says where the server is,
control.token is what it asks commands for, app/ is sent to server and nodes, state.db is the server's
database, superlink.log its log, and run-NUMBER.log what the server's app wrote in a run.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from solera.core.errors import ConfigError, DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.deploy.common.credential import TOKEN
from solera.deploy.common.private_files import private_folder

PORT = 8000
CONNECTION = "federation"  # the server's name in config.toml
SERVER_APP = "solera.deploy.server.app:app"
CLIENT_APP = "solera.deploy.node.app:app"
WORKER_APP = "solera.deploy.node.answers:answers_of"
ADMIT = "/v1/fleet/admit"  # where a server takes the keys of invited devices
CONNECTED = "a node with this key is connected"  # what the guard adds to Flower's refusal
NODES_PER_ADDRESS = "SOLERA_NODES_PER_ADDRESS"  # variable: nodes that may share an address
WAIT_HEADER = "x-solera-wait"  # seconds that a question for messages may be kept open
WAIT = 25.0  # … at most; Flower's connections wait for 30
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f:.]+")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}

SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_INTERNAL_GRPC_CONTROL_API": "0",  # with 1, the server would open ports that nothing guards
    "FLWR_INTERNAL_GRPC_FLEET_API": "0",
}


@dataclass(frozen=True)
class Address:
    """Where a SuperLink listens, and whose certificate it must show; without `ca` nothing is encrypted."""

    host: str = "127.0.0.1"
    port: int = PORT
    ca: Path | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, ca: Path | None = None) -> Address:
        """HOST:PORT, with brackets around an IPv6 host."""
        host, _, port = text.rpartition(":")
        if not host or not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"{text!r} is not HOST:PORT", f"for example 192.168.1.5:{PORT}")
        return cls(host.removeprefix("[").removesuffix("]"), int(port), ca)

    def from_here(self) -> Address:
        """How this machine itself reaches a server that listens everywhere."""
        return Address(_EVERYWHERE.get(self.host, self.host), self.port, self.ca)


def superlink(home: Path, address: Address, keys: Path | None) -> list[str]:
    """The server: with `keys` it speaks TLS and answers registered nodes alone.

    `flower-superlink` takes the same arguments, and orders from whoever reaches it: see guard.py.
    """
    command = [sys.executable, "-m", "solera.deploy.edge.guard"]
    command += ["--host", address.host, "--port", str(address.port)]
    command += ["--database", str(home / "state.db"), "--disable-runtime-dependency-installation"]
    command += ["--isolation", "process", "--superexec-auth-secret-file", str(home / TOKEN)]
    if keys is None:
        return [*command, "--insecure"]
    command += ["--ssl-ca-certfile", str(keys / "ca.pem"), "--ssl-certfile", str(keys / "server.pem")]
    return [*command, "--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth"]


def supernode(device: Path, address: Address, key: Path | None, port: int) -> list[str]:
    """Flower's own node program, for comparisons. It runs the program that the server sends."""
    command = ["flower-supernode", "--superlink", str(address), "--port", str(port)]
    if address.ca is None:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(address.ca)]
        command += ["--auth-supernode-private-key", str(key)] if key else []
    return [*command, "--node-config", f"device={_quoted(device)}"]


def kept_open(text: str | bytes) -> float:
    """Seconds for which a question with this text in its header is kept open; 0 without one."""
    try:
        return min(max(0.0, float(text)), WAIT)
    except ValueError:
        return 0.0


def node(
    device: Path, address: Address, key: Path | None, app: str, server_ca: Path | None = None
) -> list[str]:
    """A node, at a server or behind an edge: see serving.py."""
    command = [sys.executable, "-m", "solera.deploy.operate.serving", str(device.resolve())]
    command += ["--superlink", str(address), "--app", app]
    command += [] if address.ca is None else ["--ca", str(address.ca)]
    command += [] if server_ca is None else ["--server-ca", str(server_ca.resolve())]
    return [*command, "--key", str(key)] if key else command


def edge(keys: Path, listens: Address, address: Address, key: Path) -> list[str]:
    """An edge: see edge_serving.py."""
    command = [sys.executable, "-m", "solera.deploy.operate.edge_serving", "--keys", str(keys)]
    command += ["--host", listens.host, "--port", str(listens.port)]
    return [*command, "--superlink", str(address), "--ca", str(address.ca), "--key", str(key)]


def worker(device: Path, pipe: int, app: str) -> list[str]:
    """What answers for a node: see worker.py."""
    command = [sys.executable, "-m", "solera.deploy.node.worker", "--pipe", str(pipe)]
    return [*command, "--device", str(device.resolve()), "--app", app]


def register(public_key: Path) -> list[str]:
    """Make a node's key known to the running server."""
    return ["flwr", "supernode", "register", str(public_key), CONNECTION]


def run(home: Path, folder: Path) -> list[str]:
    """Start the app on the server and all its nodes."""
    config = f"folder={_quoted(folder)}"
    return ["flwr", "run", str(home / "app"), CONNECTION, "--run-config", config, "--format", "json"]


def environment(home: Path) -> dict[str, str]:
    """This process' variables, with Flower's settings and its programs on the path."""
    scripts = sysconfig.get_path("scripts")
    path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    return {**os.environ, **SETTINGS, "FLWR_HOME": str(home), "PATH": path}


def prepare_environment(folder: Path) -> None:
    """Flower's settings for this very process, before it imports Flower."""
    os.environ.update({**SETTINGS, "FLWR_HOME": str(home_of(folder))})


def as_shell(home: Path, command: list[str]) -> str:
    """A command to paste into a shell."""
    settings = [
        f"{name}={shlex.quote(value)}" for name, value in {**SETTINGS, "FLWR_HOME": str(home)}.items()
    ]
    return " ".join([*settings, shlex.join(command)])


def home_of(folder: Path) -> Path:
    """Flower's part of a federation's or a device's folder."""
    return folder.resolve() / "flower"


def write_address(home: Path, address: Address) -> None:
    """Note where the server is, for every later command on this federation."""
    trusted = {"insecure": True} if address.ca is None else {"root-certificates": str(address.ca)}
    known = {"default": CONNECTION, CONNECTION: {"address": str(address), **trusted}}
    private_folder(home)
    write_atomically(home / "config.toml", tomli_w.dumps({"superlink": known}), PRIVATE)


def read_address(folder: Path) -> Address:
    """Where the server of a federation is, as `solera server start` noted it."""
    try:
        text = (home_of(folder) / "config.toml").read_text(encoding="utf-8")
        found = tomllib.loads(text)["superlink"][CONNECTION]
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        raise DeployError(
            f"no server has been started for {folder}", f"solera server start {folder} --keys DIR"
        ) from None
    ca = found.get("root-certificates")
    return Address.parse(found["address"], None if ca is None else Path(ca))


def write_app(home: Path, server_app: str = SERVER_APP, client_app: str = CLIENT_APP) -> Path:
    """The app that is sent to server and nodes: a name for what they have installed.

    Flower looks in the app's own folder for modules that assign to the name, hence two files that do.
    """
    app = private_folder(home / "app")
    for name, reference in (("server", server_app), ("client", client_app)):
        module, _, attribute = reference.partition(":")
        source = f"from {module} import {attribute} as installed\n\napp = installed\n"
        write_atomically(app / f"solera_{name}.py", source, PRIVATE)
    write_atomically(app / "pyproject.toml", _PROJECT, PRIVATE)
    return app


def _quoted(path: Path) -> str:
    text = str(path.resolve())
    if '"' in text or "\\" in text:
        raise ConfigError(
            f"{text} has a quote or a backslash in its name, which Flower cannot handle", "rename it"
        )
    return f'"{text}"'


_PROJECT = """\
[project]
name = "solera-federation"
version = "1.0.0"
description = "A federation of Solera's; what is run is installed on server and nodes."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "solera"

[tool.flwr.app.components]
serverapp = "solera_server:app"
clientapp = "solera_client:app"

[tool.flwr.app.config]
folder = ""
"""
