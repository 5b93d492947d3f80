"""Everything that a person does with a device works where no package that trains can be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from letterboxd_export import zipped

pytest.importorskip("cryptography", reason="needs the device extra")

from commands import environment
from open_service import opened

BLOCKED = """
import sys

BLOCKED = "torch polars optuna pooch narwhals filelock jinja2 tomli_w httpx stamina psutil".split()

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""


COMMANDS = """
import json

from in_process import solera

for line in sys.stdin:
    done = solera(*json.loads(line))
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""


@pytest.fixture
def without(tmp_path, monkeypatch):
    """From now on, no process that is started can import them."""
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text(BLOCKED)
    path = [str(tmp_path / "blocked"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))


@pytest.fixture(scope="module")
def solera() -> Iterator[Callable[..., str]]:
    """What a command prints, or what it complains of, in one process that cannot import them."""
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED + COMMANDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        assert process.stdin and process.stdout

        def told(*args: object, code: int = 0) -> str:
            print(json.dumps([str(each) for each in args]), file=process.stdin, flush=True)
            ended, stdout, stderr = json.loads(process.stdout.readline())
            assert ended == code, stderr
            assert "Traceback" not in stderr
            return stderr if code else stdout

        yield told
        process.stdin.close()


def test_a_device_from_its_bundle_to_reasons(solera, bundled, keys, tmp_path):
    bundle, me = bundled("fedslist", whole=False), tmp_path / "me"
    solera("--version")
    assert "a device has all it needs" in solera("doctor")
    assert "fedslist" in solera("bundle", "show", bundle, "--vectors", tmp_path / "vectors.json")
    solera("bundle", "page", bundle, "-o", tmp_path / "page")
    assert (tmp_path / "page" / "index.html").exists()
    solera("device", "init", me, "--bundle", bundle, "--key", f"{keys}.pub")
    report = json.loads(solera("device", "import", me, "letterboxd", zipped(tmp_path / "a.zip"), "--json"))
    assert report["matched"] > 0
    solera("device", "match", me, "Fim 5", "5")
    solera("device", "add", me, "Film 7")
    shown = json.loads(solera("device", "recommend", me, "--why", "--json"))["items"]
    assert shown[0]["because"]
    for command in ("history", "status", "outbox", "policy", "token"):
        solera("device", command, me)
    solera("device", "forget", me, "--item", "7", "--yes")


@pytest.mark.parametrize("method", ["fedease", "fedhist", "fedsasrec"])
def test_recommendations_of_every_kind_of_model(solera, method, bundled, tmp_path):
    me = tmp_path / "me"
    solera("device", "init", me, "--bundle", bundled(method), "--trust")
    solera("device", "add", me, "Film 7")
    assert len(json.loads(solera("device", "recommend", me, "--json"))["items"]) == 10


@pytest.mark.usefixtures("without")
def test_the_page_and_its_service(device):
    device.add("7")
    with opened(device.path) as service:
        assert service.ask("GET", "/").status == 200
        assert service.ask("GET", "/page/about").json["model"]["method"] == "fedslist"
        found = service.ask("GET", "/api/v1/recommendations?count=5").json
        assert [len(listed) for listed in found.values() if isinstance(listed, list)] == [5]


def test_what_trains_says_how_to_install_it(solera, bundled, tmp_path):
    install = "next: pip install 'solera[train]'"
    assert install in solera("train", "fedease", "--data", "ml-100k", code=2)
    said = solera("device", "init", tmp_path / "me", "--bundle", bundled("fedmf"), "--trust", code=2)
    assert "a model of 'fedmf' learns on the device" in said
    assert install in said
    assert not (tmp_path / "me").exists()


@pytest.mark.parametrize(
    ("command", "extra"),
    [("node start", "node"), ("device contribute", "reports"), ("federation status", "server")],
)
def test_what_connects_to_servers_says_how_to_install_it(solera, command, extra, device):
    assert f"next: pip install 'solera[{extra}]'" in solera(*command.split(), device.path, code=2)


def test_the_block_holds(without, tmp_path):
    """The control: what needs torch has none."""
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in done.stderr
