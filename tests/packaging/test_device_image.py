"""The image of packaging/device.Containerfile as a person at home uses it, asked from outside."""

from __future__ import annotations

import json
import platform
import re
import ssl
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from containers import STRICT, USER, Podman, build, build_image, missing, podman, wait_until
from made_movielens import FILMS, write_letterboxd, write_movielens

from commands import solera
from solera.device.folder import CERTIFICATE
from solera.federation.operate.processes import free_port

IMAGE = "localhost/solera-device"
LARGEST = 150_000_000  # bytes, unpacked
NAME = "solera-test-device"
ME = "/data/me"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("containers"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.fixture(scope="module", params=["amd64", "arm64"])
def image(request) -> str:
    """For this machine's processor, and for the other one if an emulator is registered for it."""
    name = {"amd64": "x86_64", "arm64": "aarch64"}[request.param]
    if platform.machine() != name and not Path(f"/proc/sys/fs/binfmt_misc/qemu-{name}").exists():
        pytest.skip(f"needs qemu-user-static, binfmt and arch-test for {request.param}")
    tag = f"{IMAGE}-{request.param}"
    build(tag, "--device", "--arch", request.param)
    return tag


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> Path:
    """A folder with what a person has: a bundle, its publisher's key, and an export."""
    folder = tmp_path_factory.mktemp("given")
    write_movielens(folder / "data" / "ml-latest")
    for words in (
        ("keygen", "-o", folder / "publisher"),
        (
            *("make", "ml-latest", "-o", folder / "movies.bundle"),
            *("--key", folder / "publisher.key", "--data-dir", folder / "data"),
        ),
    ):
        made = solera("bundle", *words)
        assert made.returncode == 0, made.stderr
    write_letterboxd(folder / "letterboxd.zip")
    folder.chmod(0o755)  # the user of the image reads it
    return folder


@pytest.fixture
def machine(tmp_path, image):
    with podman(tmp_path) as run:
        yield run


class Service:
    """The container that stays, asked as from another machine of the home."""

    def __init__(self, machine: Podman, image: str, data: str, folder: Path) -> None:
        self.machine, self.folder, self.port = machine, folder, free_port()
        where = (data, f"--publish={self.port}:{self.port}")
        to = ("--network", "--port", self.port, "--name", "127.0.0.1")
        machine.start(NAME, *STRICT, *where, image, "device", "open", "me", *to)

    def link(self, number: int = 1) -> str:
        """The link that was printed at the last of so many starts."""

        def links() -> list[str]:
            return [line for line in self.machine("logs", NAME).splitlines() if line.startswith("https://")]

        wait_until(lambda: len(links()) >= number)
        return links()[-1]

    def certificate(self) -> Path:
        path = self.folder / CERTIFICATE
        self.machine("cp", f"{NAME}:{ME}/{CERTIFICATE}", path)
        return path

    def ask(self, path: str, token: str = "", body: bytes | None = None, **headers: str) -> tuple[int, Any]:
        """With the device's certificate as the only one that is trusted."""
        context = ssl.create_default_context(cafile=str(self.certificate()))
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        try:
            sent = {"Authorization": f"Bearer {token}"} | headers
            connection.request("GET" if body is None else "POST", path, body, sent)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(content) if content[:1] in b"[{" else content

    def solera(self, *words: str) -> Any:
        return json.loads(self.machine("exec", NAME, "solera", "device", *words, "--json"))


def test_the_image_is_small_and_has_no_shell(machine, image):
    assert machine.inspect(image, ".Size") < LARGEST
    look = "import os, shutil; print(os.getuid(), *filter(shutil.which, ('sh', 'pip', 'dpkg', 'python3')))"
    found = machine("run", "--rm", *STRICT, "--entrypoint=python3", image, "-c", look)
    assert found.split() == [str(USER), "python3"]
    described = machine("history", "--no-trunc", image) + machine("inspect", image)
    for name, value in build_image.pip_settings().items():
        assert name == "cert" or "/" not in value or value not in described


LACKS = """
import bz2, ctypes, lzma, pkgutil, sqlite3, ssl, uuid
import solera.cli, solera.device, solera.service
lacks = set()
for package in (solera.cli, solera.device, solera.service):
    for one in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            __import__(one.name)
        except ImportError as error:
            lacks.add(error.name)
print(len(ssl.create_default_context().get_ca_certs()) > 50, *sorted(lacks))
"""


def test_nothing_is_missing_but_packages_of_extras(machine, image):
    """No library of Debian, no part of Python, and no certificate of the web."""
    found = machine("run", "--rm", *STRICT, "--entrypoint=python3", image, "-c", LACKS)
    assert found.split() == ["True", "polars", "psutil", "torch"]


def test_a_start_compiles_nothing(machine, image):
    """Control: a module that no device imports was not compiled."""

    def compiled(*words: str) -> list[str]:
        told = machine("run", "--rm", *STRICT, "--entrypoint=python3", image, "-v", *words, stderr=True)
        return re.findall(r"code object from (/\S+)", told)

    assert compiled("-m", "solera", "device", "open", "--help") == []
    assert compiled("-c", "import this") == ["/usr/lib/python3.11/this.py"]


def test_from_a_bundle_to_the_page_in_the_home(machine, image, given, tmp_path):
    """By the commands of the guide. What a device knows survives the container."""
    data = f"--volume={machine.volume(NAME)}:/data"
    once = ("run", "--rm", "--network=none", *STRICT, data, f"--volume={given}:/given:ro", image, "device")
    machine(*once, "init", "me", "--bundle", "/given/movies.bundle", "--key", "/given/publisher.pub")
    service = Service(machine, image, data, tmp_path)

    link = urlsplit(service.link())
    owner = link.fragment.removeprefix("token=")
    assert link.netloc == f"127.0.0.1:{service.port}", "the name that was given, not the container's address"
    status, page = service.ask("/")
    assert status == 200
    assert b"<title>" in page
    assert service.ask("/api/v1/recommendations?count=5")[0] == 401
    assert service.ask("/", Host=f"evil.example:{service.port}")[0] == 421
    assert service.ask("/page/imports?name=a.zip", owner, (given / "letterboxd.zip").read_bytes())[0] == 202
    wait_until(lambda: service.ask("/page/imports/1", owner)[1]["state"] != "reading")
    assert service.solera("status", "me")["users"][0]["items"] >= 0.95 * len(FILMS)
    status, told = service.ask("/api/v1/recommendations?count=5", owner)
    assert status == 200
    shown = [each["item"]["title"] for each in told["recommendations"]]
    assert len(shown) == 5
    best = service.solera("recommend", "me", "-k", "5")
    assert shown == [each["title"] for each in best["items"]]
    anna = service.solera("token", "me", "--create", "Anna", "--scope", "page", "--user", "anna")["token"]
    assert service.ask("/page/about", anna)[1]["user"] == "anna"
    certificate = service.certificate().read_bytes()

    machine("stop", "--time", 30, NAME)
    assert machine.inspect(NAME, ".State.ExitCode") in {0, 143}, "it ends when it is asked to (SIGTERM)"
    machine("start", NAME)
    again = urlsplit(service.link(2)).fragment.removeprefix("token=")
    assert again != owner
    assert service.ask("/api/v1/recommendations?count=5", owner)[0] == 401
    assert service.ask("/api/v1/recommendations?count=5", again) == (200, told)
    assert service.ask("/page/about", anna)[1]["user"] == "anna"
    assert service.certificate().read_bytes() == certificate
