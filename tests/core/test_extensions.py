"""Methods, data sets and metrics of other packages, which name them as entry points."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from solera.core import extensions
from solera.core.errors import ConfigError
from solera.data import datasets
from solera.evaluate import metrics
from solera.methods import build, names

SOURCES = {
    "methods": """
from solera.methods import register_method
from solera.methods.fedmf import FedMFConfig, fedmf

register_method("theirs", FedMFConfig, fedmf)
""",
    "datasets": """
from solera.data.registry import DataSet, Form, register_dataset

register_dataset(DataSet(name="theirs", forms=(Form(("a.txt",), None),)))
""",
    "metrics": """
from solera.evaluate.metrics import register_metric


class Theirs:
    name = "theirs"

    def measure(self, places, counts, k):
        return 0.0 * counts


register_metric(Theirs())
""",
}
KNOWN: dict[str, Any] = {
    "methods": names,
    "datasets": datasets.names,
    "metrics": metrics.known_metrics,
}

pytestmark = pytest.mark.usefixtures("nothing_of_ones_own")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages. Each of three has an entry point of one kind."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for kind, source in SOURCES.items():
        (tmp_path / f"their_{kind}.py").write_text(source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, f"their_{kind}", raising=False)
    monkeypatch.setattr(
        extensions, "entries", lambda kind: (EntryPoint("theirs", f"their_{kind}", f"solera.{kind}"),)
    )
    return tmp_path


@pytest.mark.parametrize("kind", SOURCES)
def test_an_entry_point_is_imported_when_its_kind_is_asked_for(installed, kind):
    assert f"their_{kind}" not in sys.modules
    assert "theirs" in KNOWN[kind]()
    assert {f"their_{each}" for each in SOURCES} & set(sys.modules) == {f"their_{kind}"}


def test_one_that_fails_is_named(installed):
    (installed / "their_methods.py").write_text("1 / 0", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"their_methods, an entry point of solera\.methods.*ZeroDivision"):
        build("fedmf")


def test_the_former_name_of_the_variable_still_works(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(SOURCES["methods"], encoding="utf-8")
    monkeypatch.setenv("SOLERA_METHODS", str(tmp_path / "own.py"))
    with pytest.warns(FutureWarning, match="SOLERA_IMPORT"):
        assert "theirs" in names()
