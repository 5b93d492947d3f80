"""Sweeps: what is varied, what decides, and that no trial is made twice, whatever ends the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from benchmark import ratings

from solera.core.errors import RunError
from solera.data.datasets import load
from solera.report.sweep import importance, sweep_figures, sweep_page, variance_share
from solera.runs import RunConfig, train
from solera.runs.presets import preset
from solera.study.records import Store
from solera.study.search_space import Range, applied, read_space
from solera.study.sweep import Sweep
from solera.study.trials import Trial, TrialRecord
from solera.study.worker import Job, Outcome, perform

COLUMNS = {"user": "who", "item": "what", "time": "when"}
CONFIG = RunConfig(method="fedmf", dataset="ratings.csv", rounds=2, columns=COLUMNS)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    ratings(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(sweep: Sweep, *numbers: int) -> list[Outcome]:
    """Trials of these numbers, in this process."""
    said: list[Outcome] = []
    for number in numbers or range(len(sweep.matrix.entries)):
        entry = sweep.matrix.entries[number]
        job = Job.of(sweep.matrix, entry, sweep.folder / ".bench-work" / entry.asked.name)
        said.append(perform(job, threading.Event(), lambda _: None))
    return said


def test_a_grid_on_real_trials_and_its_preset(folder):
    space = read_space({"learning_rate": "0.001,0.3", "embedding_size": "4,8"}, CONFIG)
    sweep = Sweep(CONFIG, space, 4, folder / "out", test=True)
    sweep.begin()
    assert {each.end for each in make(sweep)} == {"done"}
    study = sweep.study()
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
        "embedding_size=4 · validation",
        "embedding_size=4 · test",
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
    first = few.study().trials
    assert first[0].options == {}, "as given"
    assert 1e-3 <= first[1].options["learning_rate"] <= 1
    more.begin()
    make(more, 2)
    assert more.study().trials[:2] == first
    assert len(more.study().trials) == 3

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
    assert "failed: " in said[1].text
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
    from solera.study.tune import importances

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
    trials = Store(folder / "out" / "trials", TrialRecord)
    deadline = time.monotonic() + 240
    while not trials.path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (made,) = trials.all()

    process = sweep_process(folder, "--json")
    printed, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    found = json.loads(printed)
    assert [each["options"]["learning_rate"] for each in found["trials"]] == [0.1, 0.2]
    assert trials.find(made.name) == made, "no trial is made twice"
    assert "best so far" in said or "done: trial" in said
    assert (folder / "out" / "sweep.html").exists()
    assert not (folder / "out" / ".bench-work").exists()
