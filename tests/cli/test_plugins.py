"""Commands of other packages: named without being imported, loaded when they are called."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from in_process import solera
from solera.core import extensions

GREET = """
import typer
import torch

def greet(name: str = "you") -> None:
    \"\"\"Greet somebody.\"\"\"
    typer.echo(f"hello {name}")

app = typer.Typer(help="Two commands.")
app.command("one")(greet)
app.command("two")(greet)
"""
ENTRIES = (
    EntryPoint("greet", "greeting:greet", "solera.commands"),
    EntryPoint("greetings", "greeting:app", "solera.commands"),
    EntryPoint("bench.greet", "greeting:greet", "solera.commands"),
    EntryPoint("train", "greeting:greet", "solera.commands"),
    EntryPoint("broken", "no_such_module:app", "solera.commands"),
)


@pytest.fixture(autouse=True)
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greeting.py").write_text(GREET)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(extensions, "entries", lambda kind: ENTRIES)
    sys.modules.pop("greeting", None)


def test_help_names_them_and_imports_nothing():
    shown = solera("--help").stdout
    assert "greetings" in shown and "Two commands." in shown and "broken" in shown
    assert shown.count("greet ") == 1, "that of `solera bench` is there alone"
    assert "greet " in solera("bench", "--help").stdout
    assert "greeting" not in sys.modules


@pytest.mark.parametrize(
    "command", [("greet",), ("greetings", "one"), ("greetings", "two"), ("bench", "greet")]
)
def test_they_are_called_like_any_other(command):
    assert solera(*command, "--name", "Ann").stdout == "hello Ann\n"
    helped = solera(*command, "-h").stdout
    assert "Greet somebody." in helped and f"solera {' '.join(command)}" in helped


def test_a_group_alone_and_wrong_use_say_what_there_is():
    assert "Two commands." in solera("greetings", "--help").stdout
    wrong = solera("greet", "--nam", "x")
    assert wrong.returncode == 2
    assert wrong.stderr.splitlines() == [
        "error: No such option '--nam'. Did you mean '--name'?",
        "next: solera greet --help",
    ]


def test_a_command_of_solera_cannot_be_replaced():
    assert "Train a method" in solera("train", "--help").stdout
