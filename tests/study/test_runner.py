"""A matrix is run once, whatever interrupts it: real processes, real signals."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmark import OWN, forget, made, matrix, ratings
from filelock import Timeout

from in_process import solera
from solera.core.errors import ConfigError, RunError
from solera.runs.blend import WEIGHTS
from solera.study import runner, worker
from solera.study.compare import boards
from solera.study.matrix import Blend, read_matrix
from solera.study.recording import Step
from solera.study.records import Failure, Record, Store, alone
from solera.study.runner import Finished, Plan, Running, Status, make_plan
from solera.study.tables import make_tables
from solera.study.worker import Job, Outcome, perform

MATRICES = Path(__file__).parents[2] / "experiments" / "matrices"
ROUNDS = 200  # some seconds
TEXT = f"""
[[run]]
{OWN}baselines = ["popularity"]

[[run]]
{OWN}methods = ["fedmf"]
label = "diverges"
options = {{ learning_rate = 1e30, local_epochs = 5 }}

[[run]]
{OWN}methods = ["fedmf"]
label = "long"
rounds = {ROUNDS}

[[run]]
{OWN}methods = ["fedease"]
"""
CHANCE: Any = {  # what two equal runs may differ in
    "seconds": True,
    "environment": True,
    "code": True,
    "result": {"seconds_per_round", "seconds_to_test", "peak_bytes"},
    "costs": {"seconds_per_client", "seconds_of_server"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    ratings(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_list_of_runs_shows_their_state_beside_a_long_name(folder: Path) -> None:
    long = "fedmf+row-mean+server-optimizer+popular-negatives with a label of more than a line"
    matrix(folder, f'[[run]]\n{OWN}methods = ["fedmf"]\nlabel = "{long}"\n')
    shown = solera("bench", "run", "matrix.toml", "--dry-run").stdout
    assert "to run   fedmf+row-mean" in shown
    assert "1 of 1 to run" in shown


def job(made_matrix, number: int, work: Path) -> Job:
    return Job.of(made_matrix, made_matrix.entries[number], work / str(number))


def bench(folder: Path, jobs: int, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "solera", "bench", "run", "matrix.toml", "--jobs", str(jobs), *more]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def history(folder: Path) -> list[str]:
    """The finished rounds of the long run, each with the seconds it took."""
    found = list(folder.glob(".bench-work/*long*/history.jsonl"))
    return found[0].read_text().splitlines() if found else []


def until(condition, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_ctrl_c_then_kill_then_to_the_end(folder):
    asked = matrix(folder, TEXT)
    baseline, diverges, long, closed = (entry.asked.name for entry in asked.entries)
    results = Store(asked.results, Record)

    process = bench(folder, 1)
    until(lambda: history(folder), process)
    os.killpg(process.pid, signal.SIGINT)
    printed, said = process.communicate(timeout=180)
    assert process.returncode == 130, said
    assert printed == ""
    assert "Traceback" not in said
    assert "stopping after these rounds" in said
    assert "stopped with 1 of 4 records" in said
    assert "next: run the same command again" in said
    assert list(results.listed()) == [baseline]
    assert "not finite" in results.failures()[diverges].error
    saved = history(folder)
    assert [path.name for path in folder.glob(".bench-work/*/checkpoint-*")] == [f"checkpoint-{len(saved)}"]
    untouched = results.find(baseline), results.failures()[diverges]

    process = bench(folder, 2)
    until(lambda: len(history(folder)) > len(saved), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert len(history(folder)) < ROUNDS, "killed in the middle"
    assert history(folder)[: len(saved)] == saved, "resumed, not begun anew"
    assert results.find(long) is None

    process = bench(folder, 2, "--json")
    printed, said = process.communicate(timeout=240)
    assert process.returncode == 1, "one has failed"
    found = json.loads(printed)
    assert (found["runs"], found["records"]) == (4, 3)
    assert long in found["made_now"]
    assert baseline not in found["made_now"]
    assert [each["record"] for each in found["failed"]] == [diverges]
    assert (results.find(baseline), results.failures()[diverges]) == untouched
    assert not (folder / ".bench-work").exists()

    # As if nothing had happened.
    again = replace(job(asked, 2, folder / "again"), store=Store(folder / "again", Record))
    assert perform(again, threading.Event(), lambda _: None).end == "done"
    (whole,), interrupted = again.store.all(), results.find(long)
    assert whole.model_dump(exclude=CHANCE) == interrupted.model_dump(exclude=CHANCE)
    assert interrupted.result.rounds == ROUNDS
    assert interrupted.result.peak_bytes > 100e6
    assert results.find(closed).result.rounds == 1


def test_a_worker_nobody_listens_to_stops_with_a_checkpoint(folder):
    here, there = Pipe()
    here.close()
    handler, threads = signal.getsignal(signal.SIGINT), torch.get_num_threads()
    try:
        worker.main(job(matrix(folder, TEXT), 2, folder / "work"), there)
    finally:
        signal.signal(signal.SIGINT, handler)
        torch.set_num_threads(threads)
    assert 1 <= len(list(folder.glob("work/2/checkpoint-*"))) <= 2
    assert not (folder / "results").exists()


class Asked(threading.Event):
    """A stop that tells when it was asked for twice: whoever waits asks again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.times, self.twice = itertools.count(1), threading.Event()

    def is_set(self) -> bool:
        if next(self.times) == 2:
            self.twice.set()
        return super().is_set()


def test_a_run_that_another_benchmark_is_at_is_waited_for(folder):
    asked = matrix(folder, TEXT)
    stop, said = Asked(), []
    waiting = threading.Thread(
        target=lambda: said.append(perform(job(asked, 0, folder), stop, lambda _: None))
    )
    with alone(folder / "0.lock"):
        waiting.start()
        assert stop.twice.wait(90), "it does not wait"
        assert said == []
        Store(asked.results, Record).put(_record(asked, 0))
    waiting.join(timeout=90)
    assert not waiting.is_alive()
    assert said == [Outcome("done", "test NDCG@10 1.0000")], "the other one's record is taken as it is"
    with alone(folder / "0.lock"), ThreadPoolExecutor() as other:
        stop.set()
        assert other.submit(perform, job(asked, 0, folder), stop, lambda _: None).result().end == "stopped"
    assert not (folder / "0.lock").exists()


def test_the_lock_of_a_killed_worker_is_free(folder):
    code = f"""
import sys, time
from pathlib import Path
from solera.study.records import alone

with alone(Path({str(folder / "0.lock")!r})):
    print("here", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"here\n"
        stop = threading.Event()
        stop.set()
        with pytest.raises(Timeout), alone(folder / "0.lock", stop.is_set):
            pass
        holder.kill()
    with alone(folder / "0.lock", stop.is_set):
        pass
    assert not (folder / "0.lock").exists()


def test_locks_and_their_folder_that_come_and_go(folder):
    """Two benchmarks, each of which removes the folder of locks when it finds it empty."""
    inside = threading.Lock()

    def go() -> None:
        for _ in range(100):
            with alone(folder / "work" / "0.lock"):
                assert inside.acquire(blocking=False)
                inside.release()
            with suppress(OSError):
                (folder / "work").rmdir()

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(go) for _ in range(3)]:
            each.result()


def test_a_folder_of_other_settings_is_begun_anew(folder):
    first = matrix(folder, f'[[run]]\n{OWN}methods = ["fedmf"]\nrounds = 2\n')
    second = matrix(folder, f'[[run]]\n{OWN}methods = ["fedmf"]\nrounds = 2\noptions = {{ reg = 0.5 }}\n')
    stop = threading.Event()
    stop.set()
    assert perform(job(first, 0, folder), stop, lambda _: None).end == "stopped"
    assert (folder / "0" / "checkpoint-1").exists()
    steps: list[Step] = []
    assert perform(job(second, 0, folder), threading.Event(), steps.append).end == "done"
    assert [(step.done, step.total) for step in steps] == [(1, 2), (2, 2)]
    assert all(step.validation is not None and 0 <= step.validation <= 1 for step in steps)
    assert not (folder / "0").exists()


def test_a_failure_nobody_foresaw_is_written_down_too(folder, monkeypatch):
    asked = matrix(folder, TEXT)
    monkeypatch.setattr("solera.data.datasets.load", lambda *_, **__: 1 / 0)
    outcome = perform(job(asked, 0, folder), threading.Event(), lambda _: None)
    assert outcome.end == "failed"
    assert outcome.text.startswith("ZeroDivisionError: division by zero (in test_runner.py, line ")
    (failure,) = Store(asked.results, Record).failures().values()
    assert failure.error == outcome.text


# What is to be done


def _record(asked, number: int, **changes):
    entry = asked.entries[number]
    fields = entry.asked.model_dump(exclude={"format"})
    return made(ranks=[1.0, 1.0], **(fields | changes))


def _put(asked, number: int, **changes) -> None:
    Store(asked.results, Record).put(_record(asked, number, **changes))


def _fail(asked, number: int, **changes) -> None:
    fields = asked.entries[number].asked.model_dump() | changes
    Store(asked.results, Record).put(Failure(**fields, error="no luck"))


def test_plan(folder):
    asked = matrix(folder, TEXT)
    one, two, three, four = asked.entries
    assert make_plan(asked) == Plan(todo=[one, two, three, four])
    _put(asked, 1)
    _fail(asked, 2)
    assert make_plan(asked) == Plan([two], [(three, "no luck")], [one, four])
    assert make_plan(asked, retry_failed=True) == Plan([two], [], [one, three, four])
    _fail(asked, 2, config=three.asked.config | {"rounds": 3})
    assert make_plan(asked).failed == [], "other settings may succeed"


@pytest.mark.parametrize(("kind", "name"), [("methods", "fedmf"), ("baselines", "mf")])
def test_a_record_from_before_an_option_existed(folder, kind, name):
    """It is of the option's default, and of no other value."""
    for number, stale in ((4, ""), (7, "no negatives instead of 7")):
        asked = matrix(folder, f'[[run]]\n{OWN}{kind} = ["{name}"]\noptions = {{ negatives = {number} }}\n')
        entry = asked.entries[0]
        options = {key: value for key, value in entry.asked.config["options"].items() if key != "negatives"}
        assert entry.difference(_record(asked, 0, config=entry.asked.config | {"options": options})) == stale


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem == "privacy" else ())
        for path in sorted(MATRICES.glob("*.toml"))
    ],
)
def test_no_record_of_the_repository_is_stale(path, monkeypatch):
    """Slow where every budget is calibrated."""
    monkeypatch.chdir(MATRICES.parent.parent)
    whole = read_matrix(path)
    plan = make_plan(whole)
    assert len(plan.recorded) + len(plan.todo) == len(whole.entries)


def test_a_stale_record_is_named(folder):
    asked = matrix(folder, TEXT)
    long = asked.entries[2]
    _put(asked, 2, config=long.asked.config | {"rounds": 3})
    with pytest.raises(RunError) as caught:
        make_plan(asked)
    assert long.asked.name in caught.value.message
    assert f"rounds 3 instead of {ROUNDS}" in caught.value.message
    assert "--replace" in caught.value.hint
    assert long in make_plan(asked, replace=True).todo


def test_a_stale_record_is_replaced_at_the_end(folder):
    asked = matrix(folder, TEXT)
    _put(asked, 0, config=asked.entries[0].asked.config | {"rounds": 9, "baseline": "ease"})
    assert perform(job(asked, 0, folder), threading.Event(), lambda _: None).end == "done"
    assert make_plan(asked).recorded == [asked.entries[0]]


# How far it is


def running(entry, step: Step | None = None, first: tuple[float, int] | None = None) -> Running:
    nobody: Any = None
    return Running(entry, nobody, nobody, started=100.0, step=step, first=first)


def test_time_left_by_hand(folder):
    one, two, three, four = matrix(folder, TEXT).entries
    status = Status(Plan(todo=[one, two, three, four]), 2, waiting=[three, four], running=[running(one)])
    assert status.eta(110.0) is None
    # Round 10 of 50 at 110 s, round 20 at 120 s: a second each, 30 left, 50 s in all.
    status.running = [running(one, Step(20, 50), (110.0, 10)), running(two)]
    assert status.running[0].remaining(120.0) == 30
    assert status.eta(120.0) == (30 + 50 + 50 + 50) / 2
    status.finished = [Finished(four, Outcome("done"), 70.0)]
    status.waiting = []
    assert status.eta(120.0) == 60, "two side by side: the longer one, of (50 + 70) / 2 s"


def test_a_killed_worker_is_no_failure_of_the_run(folder):
    asked = matrix(folder, TEXT)
    entry = asked.entries[0]
    here, there = Pipe()
    there.send(Step(1, 4, 0.5))
    there.close()
    process: Any = SimpleNamespace(join=lambda: None, exitcode=-9)
    status = Status(Plan(todo=[entry]), 1, [], [Running(entry, process, here, time.monotonic())])
    runner._listen(status)
    assert status.running[0].step == Step(1, 4, 0.5)
    runner._listen(status)
    assert status.running == []
    assert (status.done, status.total) == (0, 1)
    assert status.failed == [(entry, "its process ended with -9; the next time it goes on")]
    assert make_plan(asked).todo[0] is entry


# Blends

RUNS = f"""
[[run]]
{OWN}methods = ["fedslist"]
seeds = [0, 1]

[[run]]
{OWN}methods = ["fedease"]
seeds = [0, 1]

[[run]]
{OWN}baselines = ["slist", "ease", "popularity"]
"""
FEDERATED = '[[blend]]\nof = ["fedslist", "fedease"]\n'
CENTRAL = '[[blend]]\nof = ["slist", "ease"]\nlabel = "central blend"\n'


def test_blends_stand_in_place_of_their_parts(folder):
    found = matrix(folder, RUNS + FEDERATED + CENTRAL)
    titles = [str(entry) for entry in found.entries]
    assert titles == [
        "popularity on ratings, strict, seed 0",
        "fedslist & fedease on ratings, strict, seed 0, a blend",
        "fedslist & fedease on ratings, strict, seed 1, a blend",
        "central blend on ratings, strict, seed 0, a blend",
    ]
    assert [entry.asked.kind for entry in found.entries[1:]] == ["method", "method", "baseline"]


def test_a_blend_has_a_record_like_those_of_its_parts(folder):
    found = matrix(folder, RUNS + FEDERATED + CENTRAL)
    blends = [entry for entry in found.entries if isinstance(entry, Blend)]
    results = Store(found.results, Record)
    for entry in blends:
        perform(Job.of(found, entry, folder / "work"), threading.Event(), lambda _: None)
        both = results.listed()[entry.asked.name]
        parts = [results.listed()[part.asked.name] for part in entry.parts]
        assert both.config["first"]["options"] == parts[0].config["options"]
        assert both.result.options["weight"] in WEIGHTS
        for ndcg in (both.ndcg("test_train"), both.ndcg("test")):
            assert ndcg is not None and len(ndcg) == 30  # every user has a rank with either history
        figures = [each.result.validation.full["ndcg@10"] for each in (both, *parts)]
        assert figures[0] == max(figures)
        assert both.seconds == sum(part.seconds for part in parts)
    assert both.bytes_until_selected is None
    one, other, sum_of_both = (
        results.find(part.asked.name).bytes_until_selected for part in (*blends[0].parts, blends[0])
    )
    assert one and other and sum_of_both
    assert sum_of_both.up == pytest.approx(one.up + other.up)
    assert make_plan(found).todo == [found.entries[0]]
    (board,) = boards(results.all())  # seeds of a blend are of one row
    assert {row.name: len(row.records) for row in board.rows} == {
        "fedslist": 2,
        "fedease": 2,
        "fedslist & fedease": 2,
        "slist (centralized)": 1,
        "ease (centralized)": 1,
        "central blend (centralized)": 1,
    }
    assert "central blend" in "".join(table.markdown() for table in make_tables([board]))
    forget(results, blends[0].parts[0].asked.name)
    assert make_plan(found).todo == [found.entries[0], blends[0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[blend]]\nof = ["fedslist", "slist2"]', "blend 1: no run of 'fedslist' has"),
        ('[[blend]]\nof = ["fedslist"]', "blend 1: of: "),
        ('[[blend]]\nof = ["slist", "ease"]\nlabel = "popularity"', "would overwrite the record of run 3"),
    ],
)
def test_blends_that_do_not_fit_are_refused(folder, text, said):
    with pytest.raises(ConfigError, match=said):
        matrix(folder, RUNS + text)


# Methods side by side


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
