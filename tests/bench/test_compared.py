"""Methods side by side: one matrix, run by a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from benchmark import ratings

from in_process import solera
from solera.bench.compared import compared
from solera.core.errors import ConfigError

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


@pytest.mark.slow
def test_the_command_leaves_records_and_takes_them_up_again(tmp_path):
    ratings(tmp_path)
    command = ["compare", "fedmf", "fedease", "--data", "ratings.csv", "--rounds", "2", "--workers", "1"]
    command += ["--columns", "user=who,item=what,time=when", "--baselines", "popularity", "--json"]
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
