"""Methods side by side: one matrix, run by a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from benchmark import made, ratings
from rich.console import Console

from in_process import solera
from solera.bench.compared import compared
from solera.cli.compare import side_by_side
from solera.core.errors import ConfigError
from solera.runs.presets import methods_and_baselines

WHERE: dict[str, Any] = {"rounds": 3, "dataset": "ml-100k", "protocol": "strict", "seed": 1}


def test_rounds_are_those_asked_for_or_a_methods_own(tmp_path):
    names = ["fedmf", "fedmf+plgc", "fedease", "strict:fedmf/ml-100k"]
    made = compared(names, ["popularity"], tmp_path, **WHERE)
    labels = [entry.label for entry in made.entries]
    assert labels == [*names, "popularity"]
    rounds = [entry.config.rounds for entry in made.entries[:4]]
    assert rounds[:3] == [3, 3, 1]
    assert rounds[3] > 3, "a preset has its own"
    assert {entry.config.seed for entry in made.entries} == {1}


def test_what_cannot_be_compared(tmp_path):
    with pytest.raises(ConfigError, match="is listed twice"):
        compared(["fedmf", "fedmf"], [], tmp_path, **WHERE)
    with pytest.raises(ConfigError, match="is for ml-1m, not for ml-100k"):
        compared(["paper:pfedrec/ml-1m"], [], tmp_path, **WHERE)


def test_baselines_stand_beside_methods():
    assert methods_and_baselines(["fedmf", "ease", "local"]) == (["fedmf", "local"], ["ease"])
    assert methods_and_baselines(["fedmf"]) == (["fedmf"], ["popularity", "ease"])
    named = ["fedmf", "strict:ease/ml-100k"]
    assert methods_and_baselines(named) == (named, [])


# Everybody's test item in place 1 has an NDCG of 1, in place 3 one of 1/2, in place 20 one of 0 at 10.
ALONE, BEST = made("local", [3.0, 3.0]), made("ease", [1.0, 1.0], kind="baseline")
HALF, NONE = made("fedmf", [1.0, 3.0]), made("fedncf+elastic-merge", [20.0, 1.0])


def test_what_collaboration_gains(tmp_path):
    """Of the gap from 1/2 to 1, an NDCG of 3/4 closes half, and one of 1/2 nothing."""
    worse = made("popularity", [3.0, 20.0], kind="baseline")
    found = side_by_side([NONE, HALF, worse, ALONE, BEST], [], tmp_path)
    closed = {run["label"]: run["gap_closed"] for run in found.document["runs"]}
    assert closed == {
        "ease": None,
        "fedmf": 0.5,
        "fedncf+elastic-merge": 0.0,
        "local": None,
        "popularity": None,
    }
    said = next(each for each in found.shown if isinstance(each, str))
    assert "(local) reaches a test NDCG of 0.5000" in said and "(ease) 1.0000" in said
    assert said.endswith("fedmf 50%, fedncf+elastic-merge 0%")


@pytest.mark.parametrize(
    "records", [[HALF, ALONE], [HALF, BEST], [HALF, made("local", [1.0, 1.0]), BEST], []]
)
def test_without_a_gap_nothing_is_said_of_it(records, tmp_path):
    found = side_by_side(records, [], tmp_path)
    assert all(run["gap_closed"] is None for run in found.document["runs"])
    assert "it takes `local` and a better centralized baseline" in str(found.shown)


def test_every_figure_is_whole_in_80_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("solera.cli.output.out", Console(width=80))
    both = {"test_train": HALF.result.test, "test_validation": HALF.result.test}
    record = HALF.model_copy(update={"result": HALF.result.model_copy(update=both)})
    for each in side_by_side([record, NONE, ALONE, BEST], [], tmp_path).shown:
        if not isinstance(each, str):
            each.print()
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines() if line.split()[:1] == ["fedmf"]]
    assert [figure for line in lines for figure in line[1:]] == (
        ["0.7500", "0.7500", "1.0000", "50", "9", "98", "1.0000", "0.7500", "0.7500"]
    )
    assert "…" not in printed and all(len(line) <= 80 for line in printed.splitlines()[:-1])


@pytest.mark.slow
def test_the_command_leaves_records_and_takes_them_up_again(tmp_path):
    ratings(tmp_path)
    command = ["compare", "fedmf", "fedease", "--data", "ratings.csv", "--rounds", "2", "--workers", "1"]
    command += ["popularity", "--columns", "user=who,item=what,time=when", "--json"]
    first = subprocess.run(
        [sys.executable, "-m", "solera", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = []
    for done in (first, solera(*command, cwd=tmp_path)):
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout))
    assert said[0] == said[1], "seconds too: nothing was run again"
    assert {run["label"]: run["rounds"] for run in said[0]["runs"]} == {
        "fedmf": 2,
        "fedease": 1,
        "popularity": None,
    }
    ordered = [run["validation"]["full"]["ndcg@10"] for run in said[0]["runs"]]
    assert ordered == sorted(ordered, reverse=True)
    assert all((run["bytes_up"] is None) == (run["kind"] == "baseline") for run in said[0]["runs"])
