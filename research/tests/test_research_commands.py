"""The commands that plug into `solera`, as a user meets them."""

from __future__ import annotations

import json
import subprocess
from typing import Any, get_args

import pytest
import typer
from typer.main import get_command

from in_process import solera
from made_ratings import write_ratings
from solera.cli import app
from solera.cli.lazy import Lazy, subcommands
from solera.methods.robust import DEFENCES
from solera.runs import environment as provenance
from solera_research.cli.poison import Attack, Defence
from solera_research.poisoning.attacks import ATTACKS

HERE = {"attack", "leak", "paper", "poison", "bench predict", "bench scale", "bench speed"}


def plugged() -> dict[str, Any]:
    """The commands of this package, by what one types."""
    top = get_command(app)
    context, found = typer.Context(top), dict[str, Any]()
    for path, group in (("", top), ("bench ", subcommands(top)["bench"])):
        for name in group.list_commands(context):
            each = group.get_command(context, name)
            if isinstance(each, Lazy) and each.where.startswith("solera_research."):
                found[f"{path}{name}"] = each
    return found


def test_all_commands_are_there_with_a_help_text():
    found = plugged()
    assert set(found) == HERE
    for name, each in found.items():
        loaded = each.load()
        assert each.help, name
        assert loaded.help.startswith(each.help), name
        assert all(leaf.help for leaf in subcommands(loaded).values()), name
    assert {*subcommands(found["paper"].load())} == {"run", "show", "summary", "draw"}


def test_what_can_be_chosen_is_what_there_is():
    assert sorted(get_args(Attack)) == sorted([*ATTACKS, "none"])
    assert sorted(get_args(Defence)) == sorted([*DEFENCES, "none"])


@pytest.mark.parametrize(
    "code", [provenance.Code(commit="c0ffee", dirty=True), provenance.Code()], ids=["dirty", "unknown"]
)
@pytest.mark.parametrize(
    "args",
    [
        ("attack", "fedmf", "--data", "ml-100k", "--record"),
        ("poison", "fedmf", "--data", "ml-100k", "--record"),
        ("bench", "scale", "--quick", "--only", "fedmf", "-o"),
        ("paper", "run", "fedem/table-1", "--data", "filmtrust", "--only", "FedMF", "--records"),
    ],
)
def test_no_record_of_a_source_without_a_commit(code, args, pytestconfig, monkeypatch, tmp_path):
    """Neither is anything trained first: there are no data here."""
    monkeypatch.setattr(provenance, "source", lambda: code)
    monkeypatch.setenv("SOLERA_DATA", str(tmp_path))
    (tmp_path / "filmtrust").mkdir()
    (tmp_path / "filmtrust" / "ratings.txt").write_text("1 2 3\n")
    refused = solera(*args, pytestconfig.rootpath / "experiments" / "records" / "new")
    assert refused.returncode == 2
    assert ("uncommitted changes" if code.commit else "whose commit is unknown") in refused.stderr
    assert not (pytestconfig.rootpath / "experiments" / "records" / "new").exists()


def test_programs_of_research_count_as_source(tmp_path, monkeypatch):
    package = tmp_path / "src" / "solera"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    me = ("-c", "user.name=a", "-c", "user.email=b")
    for command in (("init", "-q"), ("add", "."), (*me, "commit", "-qm", "c")):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    monkeypatch.setattr("solera.__file__", str(package / "__init__.py"))
    assert provenance.source().dirty is False
    (tmp_path / "notes.md").touch()
    assert provenance.source().dirty is False
    program = tmp_path / "research" / "experiments" / "new.py"
    program.parent.mkdir(parents=True)
    program.touch()
    assert provenance.source().dirty is True


@pytest.mark.parametrize(
    ("args", "message", "next_step"),
    [
        (
            ("poison", "fedmf", "--attack", "promotoin"),
            "'promotoin' is not one of 'promotion'",
            "poison --help",
        ),
        (("poison", "fedmf", "--defence", "medain"), "'medain' is not one of 'norm-bound'", "--help"),
        (("leak", "--data", "ml-10k"), "unknown data set 'ml-10k'", "'ml-100k'?"),
        (("leak", "--method", "fedrp"), "unknown method 'fedrp'", "'fedrap'?"),
        (("leak", "--method", "fedslist"), "needs one round", "a method of many rounds"),
        (("leak", "--picture", "/dev/null/leak"), "/dev/null cannot be created", "give another --picture"),
        (("paper", "draw", "fedease", "--data", "filmtrust"), "solved in one round", "of many rounds"),
        (("bench", "speed", "sekagg"), "'sekagg' is not one of 'engine'", "solera bench speed --help"),
    ],
)
def test_wrong_input_is_one_line_and_a_next_step(args, message, next_step, tmp_path, dataset):
    done = solera(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert message in error
    assert next_step in hint
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_leak(tmp_path):
    ratings = write_ratings(tmp_path / "ratings.csv", users=30, items=40, each=10, seed=0)
    fast = ("--method", "local", "--rounds", "2", "-o", "local_epochs=1", "--threads", "1")
    found = json.loads(solera("leak", "--data", ratings, *fast, "--json", cwd=tmp_path).stdout)
    assert [len(found[protocol]["places"]) for protocol in ("paper", "strict")] == [3, 3]
    assert found["paper"]["control"]["full"] > found["strict"]["control"]["full"]
    assert all((tmp_path / picture).stat().st_size for picture in found["pictures"])
    shown = solera("leak", "--data", ratings, *fast, "--picture", "new/picture", cwd=tmp_path)
    assert shown.returncode == 0
    assert "LEAKY" in shown.stdout
    assert f"{found['strict']['places'][-1]['held_out']:.1f}" in shown.stdout


@pytest.mark.slow
def test_the_counter_stands_beside_every_published_figure(tmp_path, monkeypatch, dataset):
    monkeypatch.setattr("solera_research.leak.DATASETS", ("filmtrust", "missing"))
    monkeypatch.setattr("solera.data.datasets.available", lambda name, _: {"missing": "by hand"}.get(name))
    done = solera("leak", "--all", "--picture", "new/counter", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    (row,), left_out = found["rows"], found["left_out"]
    assert left_out == ["missing"]
    assert row["counter"] == pytest.approx(row["law"], abs=0.02)
    assert row["counter, strict"]["hr@10"] == pytest.approx(0.1, abs=0.04)
    assert len(row["published"]) > 20
    assert all((tmp_path / picture).stat().st_size for picture in found["pictures"])
