"""Sweeps: what is varied, what decides, and that no trial is made twice, whatever ends the process."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from typing import Any

import pytest
from benchmark import ratings

from solera.bench.axes import applied, grid, read_space
from solera.bench.jobs import Job
from solera.bench.spaces import Range
from solera.bench.sweep import Sweep, check_size, read_trials
from solera.bench.trials import Trial
from solera.bench.worker import Done, perform
from solera.core.errors import ConfigError, RunError
from solera.data.datasets import load
from solera.report.sweep import importance, sweep_figures, sweep_page, variance_share
from solera.runs import RunConfig, train
from solera.runs.presets import preset

COLUMNS = {"user": "who", "item": "what", "time": "when"}
CONFIG = RunConfig(method="fedmf", dataset="ratings.csv", rounds=2, columns=COLUMNS)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    ratings(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("axis", "where"),
    [
        ("learning_rate=0.01,0.1", Range(choices=[0.01, 0.1])),
        ("learning_rate=0.1,0.1*0.9^round", Range(choices=[0.1, "0.1*0.9^round"])),
        ("learning_rate=1e-4..1", Range(low=1e-4, high=1, log=True)),
        ("learning_rate=0.1..1", Range(low=0.1, high=1)),
        ("learning_rate=0.1..1:log", Range(low=0.1, high=1, log=True)),
        ("reg=0..1", Range(low=0, high=1)),
        ("reg=1e-4..1:linear", Range(low=1e-4, high=1)),
        ("embedding_size=4..64", Range(low=4, high=64, log=True, whole=True)),
        ("rounds=2..9", Range(low=2, high=9, whole=True)),
        ("noise=0,0.5", Range(choices=[0, 0.5])),
    ],
)
def test_axes_as_they_are_written(axis, where):
    name, text = axis.split("=", 1)
    assert read_space({name: text}, CONFIG) == {name: where}


def test_an_axis_of_lists():
    config = RunConfig(method="fedem", dataset="x", rounds=2)
    assert read_space({"adapter": "[16,8],[4,2]"}, config) == {"adapter": Range(choices=["16,8", "4,2"])}


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("leaning_rate=1,2", "no option 'leaning_rate'"),
        ("negatives=0,4", "negatives"),
        ("embedding_size=0..8", "embedding_size"),
        ("learning_rate=1..0.1", "is not a range"),
        ("learning_rate=a..b", "is not a range"),
        ("reg=0..1:log", "must start above 0"),
        ("reg=1,1", "repeats a value"),
        ("reg=", "list of values is empty"),
        ("dp.epsilon=1,2", "delta"),
    ],
)
def test_what_no_run_would_take_is_an_error_at_once(axis, message):
    name, text = axis.split("=", 1)
    with pytest.raises(ConfigError, match=message):
        read_space({name: text}, CONFIG)


def test_a_value_is_set_where_it_belongs():
    pytest.importorskip("dp_accounting")
    base = applied(CONFIG, {"dp.epsilon": 8, "dp.delta": 1e-5})
    assert (base.dp.epsilon, base.dp.noise) == (8, None)
    made = applied(base, {"dp.noise": 2.0, "reg": 0.1, "rounds": 7})
    assert (made.dp.epsilon, made.dp.noise, made.dp.delta) == (None, 2.0, 1e-5)
    assert (made.options, made.rounds) == ({"reg": 0.1}, 7)
    assert applied(CONFIG, {"noise": 0.5}).noise.scale == 0.5
    assert applied(CONFIG, {"noise": 0}).noise is None


def test_a_grid_is_every_combination_and_is_tried_in_full():
    space = {"a": Range(choices=[1, 2]), "b": Range(choices=["x", "y"])}
    found = [tuple(each.values()) for each in grid(space)]
    assert found == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    assert check_size(space, None) == 4
    with pytest.raises(ConfigError, match="tried in full"):
        check_size(space, 3)
    assert check_size({"a": Range(low=0, high=1)}, 7) == 7
    with pytest.raises(ConfigError, match="nothing to sweep"):
        check_size({}, None)


def make(sweep: Sweep, *numbers: int) -> list[object]:
    """Trials of these numbers, in this process."""
    said: list[object] = []
    for number in numbers or range(len(sweep.matrix.entries)):
        entry = sweep.matrix.entries[number]
        job = Job(entry, sweep.matrix.record(entry), sweep.folder / "work", None)
        said.append(perform(job, threading.Event(), lambda _: None))
    return said


def test_a_grid_on_real_trials_and_its_preset(folder):
    space = read_space({"learning_rate": "0.001,0.3", "embedding_size": "4,8"}, CONFIG)
    sweep = Sweep(CONFIG, space, 4, folder / "out", test=True)
    sweep.begin()
    assert all(isinstance(each, Done) for each in make(sweep))
    study = sweep.save()
    assert [trial.options["embedding_size"] for trial in study.trials] == [4, 8, 4, 8]
    assert study.best.ndcg == max(trial.ndcg or 0 for trial in study.trials), "validation decides"

    run = train(applied(CONFIG, study.best.options), load("ratings.csv", columns=COLUMNS))
    assert study.best.ndcg == run.validation["full"]["ndcg@10"]
    assert study.best.test == {name: run.test["full"][name] for name in ("hr@10", "ndcg@10")}
    assert study.best.ndcg99 == run.validation["sampled99"]["ndcg@10"], "and as papers report it"
    assert study.best.hr99 == run.validation["sampled99"]["hr@10"]
    assert study.best.test99 == {name: run.test["sampled99"][name] for name in ("hr@10", "ndcg@10")}

    chosen = preset(str(sweep.write_best(study)))
    assert chosen.config() == applied(CONFIG, study.best.options).resolved()

    figures = sweep_figures(study)
    assert [figure.name for figure in figures["by-option"][:2]] == [
        "by-learning_rate-ndcg-10",
        "by-learning_rate-hr-10",
    ]
    lines = figures["by-option"][0].chart.series
    assert [line.label for line in lines[:2]] == [
        "embedding_size=4 · validation items",
        "embedding_size=4 · test items",
    ]
    assert list(lines[0].y) == [study.trials[0].ndcg, study.trials[2].ndcg]
    page = sweep_page(study, figures)
    assert "Sweep of fedmf on ratings" in page and "LEAKY" not in page


def test_a_folder_goes_on_with_more_trials_and_with_nothing_else(folder):
    pytest.importorskip("optuna")
    space = read_space({"learning_rate": "1e-3..1"}, CONFIG)
    few, more = (Sweep(CONFIG, space, size, folder / "out") for size in (2, 3))
    few.begin()
    make(few)
    first = read_trials(folder / "out" / "trials")
    assert first[0].options == {}, "as given"
    assert 1e-3 <= first[1].options["learning_rate"] <= 1
    assert len(more.begin().trials) == 2
    make(more, 2)
    assert {**read_trials(folder / "out" / "trials")} == {**first, 2: more.study().trials[2]}

    other = CONFIG.model_copy(update={"options": {"reg": 0.1}})
    with pytest.raises(RunError, match="holds another sweep"):
        Sweep(other, space, 3, folder / "out").begin()
    with pytest.raises(RunError, match="not the folder of a sweep"):
        Sweep(CONFIG, space, 3, folder).begin()


def test_a_trial_that_diverges_is_an_outcome(folder):
    space = read_space({"learning_rate": "0.1,1e30"}, CONFIG)
    config = CONFIG.model_copy(update={"options": {"local_epochs": 5}})
    sweep = Sweep(config, space, 2, folder / "out")
    sweep.begin()
    said = make(sweep)
    assert "failed: " in str(said[1])
    assert [trial.end for trial in sweep.study().trials] == ["finished", "failed"]


def trial(ndcg: float, **options) -> Trial:
    return Trial(options=options, end="finished", ndcg=ndcg, hr=ndcg, seconds=1.0)


def test_importance_in_a_grid_by_hand():
    # Figures 1, 2, 5, 6: variance 4.25. Means by a: 1.5 and 5.5, variance 4; by b: 3 and 4, variance 0.25.
    made = [trial(0.1, a=1, b=1), trial(0.2, a=1, b=2), trial(0.5, a=2, b=1), trial(0.6, a=2, b=2)]
    assert variance_share("a", made) == pytest.approx(4 / 4.25)
    assert variance_share("b", made) == pytest.approx(0.25 / 4.25)


def test_importance_in_a_search_finds_what_matters(folder):
    pytest.importorskip("optuna")
    from solera.bench.tuning import importances

    space = {"a": Range(low=0, high=1), "b": Range(low=0, high=1)}
    values = [(place / 20, (7 * place % 20) / 20) for place in range(20)]
    found = importances(space, [trial(a, a=a, b=b) for a, b in values])
    assert sum(found.values()) == pytest.approx(1)
    assert found["a"] > 0.8
    study = Sweep(CONFIG, {"reg": Range(low=0, high=1)}, 2, folder / "out").study()
    assert importance(study) == [], "one setting alone"


def sweep_process(folder, *more: str) -> subprocess.Popen[str]:
    columns = ",".join(f"{key}={value}" for key, value in COLUMNS.items())
    command = [
        sys.executable,
        "-m",
        "solera",
        "sweep",
        "fedmf",
        "--data",
        "ratings.csv",
        "--columns",
        columns,
    ]
    command += ["-s", "learning_rate=0.1,0.2", "--rounds", "40", "--out", "out", "--workers", "1"]
    return subprocess.Popen(
        [*command, *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_killed_in_the_middle_then_to_the_end(folder):
    process = sweep_process(folder)
    trials = folder / "out" / "trials"
    deadline = time.monotonic() + 240
    while not list(trials.glob("0*.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    made = {path: path.stat().st_mtime_ns for path in trials.glob("0*.json")}
    assert len(made) == 1

    process = sweep_process(folder, "--json")
    printed, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    found = json.loads(printed)
    assert [each["options"]["learning_rate"] for each in found["trials"]] == [0.1, 0.2]
    assert {path: path.stat().st_mtime_ns for path in made} == made, "no trial is made twice"
    assert "best so far" in said or "done: trial" in said
    assert (folder / "out" / "sweep.html").exists()
    assert not (folder / "out" / ".bench-work").exists()


def test_every_sweep_in_the_documents_is_taken(pytestconfig):
    text = (pytestconfig.rootpath / "docs" / "guides" / "studies.md").read_text("utf-8").replace("\\\n", "")
    commands = [shlex.split(line) for line in re.findall(r"^solera sweep .*$", text, re.MULTILINE)]
    assert len(commands) > 5
    for command in commands:
        given: dict[str, Any] = {"-s": {}, "-o": {}, "--plugin": []}
        for flag, value in pairwise(command):
            if flag == "--plugin":
                given[flag].append(value)
            elif flag in given:
                key, _, rest = value.partition("=")
                given[flag][key] = rest
        config = RunConfig(
            method=command[2],
            dataset="ml-100k",
            rounds=5,
            options=given["-o"],
            plugins=tuple(given["--plugin"]),
        )
        assert check_size(read_space(given["-s"], config), None) > 1
