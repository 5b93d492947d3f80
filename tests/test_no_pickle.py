"""No part of Solera reads pickles: whoever writes one runs code in the program that reads it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import solera

ROOT = Path(solera.__file__).parent
READERS = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CALLS = {"read_pickle", "send_object_list", "recv_object_list", "gather_object"}
CALLS |= {"all_gather_object", "broadcast_object_list", "scatter_object_list"}


def uses_of_pickle(source: str) -> list[str]:
    """Imports of modules that read pickles, and calls that read them without saying so."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names if READERS & set(alias.name.split("."))]
            case ast.ImportFrom(module=str(module), names=names):
                named = {*module.split("."), *(alias.name for alias in names)}
                found += named & (READERS | CALLS)
                found += ["torch.load"] if module == "torch" and "load" in named else []
            case ast.Attribute(value=ast.Name(id="torch"), attr="load"):
                found.append("torch.load")
            case ast.Attribute(attr=attr) if attr in CALLS:
                found.append(attr)
            case ast.keyword(arg="allow_pickle", value=value):
                found += [] if isinstance(value, ast.Constant) and value.value is False else ["allow_pickle"]
    return found


def test_the_package_reads_no_pickles():
    found = {file: uses_of_pickle(file.read_text(encoding="utf-8")) for file in ROOT.rglob("*.py")}
    assert {file: uses for file, uses in found.items() if uses} == {}
    assert len(found) > 100


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import joblib.numpy_pickle",
        "from pickle import loads",
        "import torch\ntorch.load(path)",
        "from torch import load",
        "import torch.distributed as dist\ndist.all_gather_object(found, value)",
        "from torch.distributed import broadcast_object_list",
        "np.load(path, allow_pickle=True)",
        "pandas.read_pickle(path)",
    ],
)
def test_reading_a_pickle_is_noticed(source):
    assert uses_of_pickle(source)
