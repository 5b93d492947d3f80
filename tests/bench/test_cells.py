"""A cell: search, final runs, and what happens when a final run diverges or everything is interrupted."""

from __future__ import annotations

import threading

import pytest
from benchmark import matrix, ratings

from solera.bench import cells, jobs
from solera.bench.jobs import Job, Step
from solera.bench.records import read, write
from solera.bench.runner import make_plan
from solera.bench.worker import Done, Failed, Stopped, perform
from solera.core.errors import DivergedError, RunError

MATRIX = """
[[tune]]
datasets = ["ratings.csv"]
methods = ["fedmf"]
seeds = [0, 1]
trials = 4
passes = 6
patience = 3
space.fedmf = { embedding_size = { choices = [4] }, local_epochs = { choices = [1] } }
first.fedmf = { embedding_size = 4, local_epochs = 2 }
"""


@pytest.fixture
def cell(tmp_path, monkeypatch):
    """The matrix, and the job of its only cell."""
    text = ratings(tmp_path).read_text().replace("who,what,when", "user,item,time")
    (tmp_path / "ratings.csv").write_text(text)
    monkeypatch.chdir(tmp_path)
    found = matrix(tmp_path, MATRIX)
    (entry,) = found.entries
    return found, Job(entry, found.record(entry), tmp_path / "work", None)


def finals(found, job):
    study = job.entry.read(job.record)
    return study, [read(found.results / run.asked.name) for run in job.entry.finals(study)]


def test_a_cell_is_tuned_and_run_and_never_worse_than_its_first_trials(cell):
    found, job = cell
    assert make_plan(found).todo == [job.entry]
    steps: list[Step] = []
    assert isinstance(perform(job, threading.Event(), steps.append), Done)
    study, records = finals(found, job)
    assert [record.seed for record in records] == [0, 1]
    assert {record.label for record in records} == {"fedmf"}
    assert study.trials[0].options == {"embedding_size": 4, "local_epochs": 2}
    validation = records[0].result.validation.full["ndcg@10"]  # of the seed of the trials
    assert validation >= (study.trials[0].ndcg or 0)
    assert validation == pytest.approx(study.best.ndcg), "the same run, with the same patience"
    assert {(record.config["rounds"], record.config["patience"]) for record in records} == {(6, 3)}
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].total == (4 + 2) * 6
    assert make_plan(found).recorded == [job.entry]
    assert not job.folder.exists()
    (found.results / records[1].name).unlink()
    assert make_plan(found).todo == [job.entry]


def test_settings_that_diverge_give_way_to_the_next_best_for_all_seeds(cell, monkeypatch):
    found, job = cell
    trained, ran = jobs.trained, []

    def sometimes(run, config, *rest):
        ran.append((config.options, config.seed))
        if config.options == ran[0][0] and config.seed == 1:
            raise DivergedError("the loss is not finite")
        return trained(run, config, *rest)

    monkeypatch.setattr(cells, "trained", sometimes)
    perform(job, threading.Event(), lambda _: None)
    study, records = finals(found, job)
    (rejected,) = study.rejected
    assert (rejected.seed, rejected.why) == (1, "the loss is not finite")
    assert study.trials[rejected.trial].ndcg >= study.best.ndcg
    assert records[0].config["options"] == records[1].config["options"] != ran[0][0]
    assert [seed for _, seed in ran] == [0, 1, 0, 1]


@pytest.mark.parametrize(("chance", "rejected"), [(0.02, True), (0.9, False)])
def test_a_final_run_with_half_the_figure_of_its_trial_has_collapsed(cell, monkeypatch, chance, rejected):
    """Unless the trial had found nothing either: that is a figure up to twice that of a random order."""
    found, job = cell
    monkeypatch.setattr(cells, "chance", lambda _: chance)
    perform(job, threading.Event(), lambda _: None)
    study, records = finals(found, job)
    assert not study.rejected
    number = study.trials.index(study.best)
    worst = min(records, key=lambda record: record.result.validation.full["ndcg@10"])
    lucky = 2 * worst.result.validation.full["ndcg@10"]
    assert lucky > study.best.ndcg
    trials = [
        trial if n != number else trial.model_copy(update={"ndcg": lucky})
        for n, trial in enumerate(study.trials)
    ]
    write(study.model_copy(update={"trials": tuple(trials)}), job.record)
    for path in found.results.rglob("*.json"):
        path.unlink()
    perform(job, threading.Event(), lambda _: None)
    study, records = finals(found, job)
    assert [(each.trial, each.seed) for each in study.rejected] == [(number, worst.seed)] * rejected
    assert all(f"in the trial it was {lucky:.4f}" in each.why for each in study.rejected)
    assert len(records) == 2


def test_when_all_settings_diverge_the_cell_has_failed(cell, monkeypatch):
    found, job = cell

    def diverges(*_):
        raise DivergedError("the loss is not finite")

    monkeypatch.setattr(cells, "trained", diverges)
    assert isinstance(perform(job, threading.Event(), lambda _: None), Failed)
    ((entry, error),) = make_plan(found).failed
    assert entry is job.entry
    assert "all were rejected" in error


@pytest.mark.parametrize("passes", [9, 27])  # in a trial, in a final run
def test_an_interrupted_cell_goes_on_to_the_same_end(cell, passes):
    found, job = cell
    stop = threading.Event()

    def report(step):
        if step.done >= passes:
            stop.set()

    assert isinstance(perform(job, stop, report), Stopped)
    perform(job, threading.Event(), lambda _: None)
    study, records = finals(found, job)
    other = job._replace(folder=job.folder.with_name("other"), record=job.record.with_name("other.json"))
    for record in records:
        (found.results / record.name).unlink()
    perform(other, threading.Event(), lambda _: None)
    whole = job.entry.read(other.record)
    assert whole.best.options == study.best.options
    assert [trial.curve for trial in whole.trials] == [trial.curve for trial in study.trials]
    assert [read(found.results / record.name).ranks for record in records] == [each.ranks for each in records]


SOLVED = """
[[tune]]
datasets = ["ratings.csv"]
baselines = ["ease"]
seeds = [0]
trials = 3
"""


def test_a_search_without_rounds_stops_after_its_trial(cell, tmp_path):
    found = matrix(tmp_path, SOLVED)
    job = Job(found.entries[0], found.record(found.entries[0]), tmp_path / "ease", None)
    stop = threading.Event()
    assert isinstance(perform(job, stop, lambda _: stop.set()), Stopped)
    assert len(job.entry.read(job.folder / "study.json").trials) == 1
    assert not job.record.exists()


def test_a_study_of_other_ranges_is_named_and_made_again(cell, tmp_path):
    _, job = cell
    perform(job, threading.Event(), lambda _: None)
    wider = matrix(tmp_path, MATRIX.replace("choices = [1] }", "choices = [1, 2] }"))
    with pytest.raises(RunError, match="other ranges of local_epochs") as caught:
        make_plan(wider)
    assert "--replace" in caught.value.hint
    (entry,) = make_plan(wider, replace=True).todo
    steps: list[Step] = []
    assert isinstance(perform(job._replace(entry=entry), threading.Event(), steps.append), Done)
    assert steps[0].done <= 1, "no trial of the other search counts"
    assert entry.read(job.record).space["local_epochs"] == {"choices": [1, 2]}
    assert make_plan(wider).recorded == [entry]
