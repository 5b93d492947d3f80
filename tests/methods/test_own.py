"""Methods of a user's own, from a file that Solera does not know of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import in_process
from solera.core.context import MethodConfig
from solera.core.errors import ConfigError
from solera.core.method import Method
from solera.methods import build, names, register
from solera.methods.fedmf import FedMFConfig, fedmf

FILE = """
from solera.methods import register
from solera.methods.fedmf import FedMFConfig, fedmf


class MineConfig(FedMFConfig):
    embedding_size: int = {size}


register("{name}", MineConfig, fedmf)
"""


pytestmark = pytest.mark.usefixtures("nothing_of_ones_own")


def written(folder: Path, name: str, size: int) -> Path:
    file = folder / f"{name}.py"
    file.write_text(FILE.format(name=name, size=size), encoding="utf-8")
    return file


def test_a_registered_method_is_built_like_any_other():
    register("mine", FedMFConfig, fedmf)
    assert "mine" in names()
    method = build("mine", {"embedding_size": 3}, ["row-mean"])
    assert isinstance(method, Method)
    assert (method.name, method.config.embedding_size) == ("mine+row-mean", 3)


def test_registering_again_replaces_it():
    register("mine", FedMFConfig, fedmf)
    register("mine", MethodConfig, lambda config: fedmf(FedMFConfig(embedding_size=config.embedding_size)))
    assert build("mine").config.embedding_size == 32


@pytest.mark.parametrize("name", ["fedmf", "fedease"])
def test_names_of_soleras_own_are_taken(name):
    with pytest.raises(ConfigError, match="another name"):
        register(name, FedMFConfig, fedmf)


def test_files_named_in_the_environment_are_run_once(tmp_path, monkeypatch):
    files = [written(tmp_path, "one", 5), written(tmp_path, "two", 6)]
    assert not {"one", "two"} & set(names())
    monkeypatch.setenv("SOLERA_IMPORT", os.pathsep.join(map(str, files)))
    assert [build(name).config.embedding_size for name in ("one", "two")] == [5, 6]
    files[0].write_text("raise RuntimeError('run again')", encoding="utf-8")
    assert {"one", "two"} <= set(names())


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SOLERA_IMPORT", str(tmp_path / "gone.py"))
    with pytest.raises(ConfigError, match=r"gone\.py.*SOLERA_IMPORT"):
        build("fedmf")


def test_a_file_with_an_error_says_so_every_time(tmp_path, monkeypatch):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("1 / 0", encoding="utf-8")
    monkeypatch.setenv("SOLERA_IMPORT", str(wrong))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"wrong\.py' cannot be loaded: ZeroDivisionError"):
            names()


def test_on_the_command_line_from_training_to_recommending(tmp_path, nothing_of_ones_own):
    """Training is a process of its own."""

    def solera(*arguments: str) -> str:
        done = in_process.solera(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    written(tmp_path, "mine", 5)
    rows = "\n".join(f"{user},{(user * 7 + 3 * k) % 30},{k}" for user in range(12) for k in range(8))
    (tmp_path / "ratings.csv").write_text(f"user,item,time\n{rows}\n", encoding="utf-8")
    own = ("--import", "mine.py")
    shown = json.loads(solera(*own, "methods", "mine", "--json"))
    assert {"option": "embedding_size", "default": 5, "about": None} in shown["options"]
    training = ("train", "mine", "--data", "ratings.csv", "--rounds", "2", "--out", "run")
    command = [sys.executable, "-m", "solera", *own, *training]
    trained = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert trained.returncode == 0, trained.stderr
    environment = json.loads((tmp_path / "run" / "environment.json").read_text(encoding="utf-8"))
    assert list(environment["methods"]) == ["mine.py"]
    assert "For user 3" in solera(*own, "recommend", "run", "--user", "3", "-k", "2")
