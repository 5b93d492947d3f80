"""Equal tuning: as many trials for everyone, on validation alone, and interruptions do not show."""

from __future__ import annotations

import json
import threading
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmark import forget, matrix, ratings

from in_process import solera
from solera.core.errors import ConfigError, DivergedError, RunError
from solera.data.interactions import Interactions
from solera.evaluate.metrics import per_user
from solera.runs import RunConfig, StoppedError
from solera.runs.presets import Preset, presets
from solera.study import worker
from solera.study.budget import Effort, chance, full_length, some_users
from solera.study.matrix import Tuning, read_tuning
from solera.study.presets import presets_of
from solera.study.recording import Step, Work
from solera.study.records import SEARCH, Store
from solera.study.runner import make_plan
from solera.study.search_space import Range, as_json
from solera.study.trials import Found, Study, Trial, narrow, spent
from solera.study.tune import opened, search, trials_of
from solera.study.worker import Job, perform

SPACE = {"rate": Range(low=0.01, high=1.0, log=True), "size": Range(choices=[8, 16])}
SMALL = Effort(trials=9, passes=20, patience=5)


@pytest.fixture
def storage(tmp_path) -> Path:
    return tmp_path / "optuna.log"


def peak(options, heard):
    """Best at a rate of 0.1; the defaults are at 1."""
    return Found(ndcg=1 / (1 + abs(options.get("rate", 1.0) - 0.1)), hr=0.5, rounds=1, passes=10)


def climbing(share=1.0, rounds=20):
    """Twenty rounds of a share of the clients; a lower rate climbs higher, the defaults hardly at all."""

    def evaluate(options, heard):
        height = 1.01 - options.get("rate", 1.0)
        for n in range(1, rounds + 1):
            heard(height * n, share * n)
        return Found(ndcg=height * rounds, hr=0.5, rounds=rounds, passes=share * rounds)

    return evaluate


def settings(trials):
    return [trial.options for trial in trials]


def test_the_first_trials_are_as_given_and_all_others_lie_in_the_space(storage):
    first, second, *others = search(storage, SPACE, SMALL, peak, first=({"rate": 5.0}, {}))
    assert first.options == {"rate": 5.0}
    assert second.options == {}
    assert len(others) == 7
    assert all(0.01 <= trial.options["rate"] <= 1 and trial.options["size"] in (8, 16) for trial in others)


def test_a_search_without_options_is_its_first_trials(storage):
    assert settings(search(storage, {}, SMALL, peak)) == [{}]


def test_every_trial_runs_as_long_as_it_would_alone(storage):
    """The worst of all too: nothing is pruned, so slow learners are not stopped for a slow start."""
    made = search(storage, SPACE, SMALL, climbing())
    assert [len(trial.curve) for trial in made] == [20] * 9
    assert {trial.end for trial in made} == {"finished"}


def test_a_slow_learner_wins_the_search_that_its_figures_deserve(storage):
    """At chance for 25 passes, then above all others: successive halving at 5 passes would have ended it."""

    def evaluate(options, heard):
        slow = options.get("rate", 1.0) < 0.1
        for n in range(1, 41):
            heard(figure := (0.0 if n <= 25 else 0.5) if slow else 0.1, float(n))
        return Found(ndcg=figure, hr=0.5, rounds=40, passes=40)

    made = search(storage, SPACE, SMALL, evaluate)
    assert max(made, key=lambda trial: trial.ndcg or 0).options["rate"] < 0.1


def test_a_trial_that_fails_is_replaced_up_to_as_many_again(storage):
    def fails(options, heard):
        if options.get("rate", 0.5) > 0.2:
            raise RuntimeError("singular")
        return Found(ndcg=0.1, hr=0.2, passes=20)

    made = search(storage, SPACE, SMALL, fails)
    assert sum(trial.end == "finished" for trial in made) == SMALL.trials
    assert made[0].error == "RuntimeError: singular"

    def fails_mostly(options, heard):
        if options:
            raise RuntimeError("singular")
        return Found(ndcg=0.1, hr=0.2, passes=20)

    assert len(search(storage.with_name("other.log"), SPACE, SMALL, fails_mostly)) == 2 * SMALL.trials


def test_a_search_learns_where_settings_fail(storage):
    """Two rates whose product must not be large, as PFedRec's; a search once failed 310 times of 314."""
    space = {"rate": Range(low=0.01, high=1, log=True), "item_rate": Range(low=1, high=300, log=True)}

    def evaluate(options, heard):
        product = options.get("rate", 0.1) * options.get("item_rate", 80)
        if product > 10:
            raise DivergedError("not finite")
        return Found(ndcg=product / 100, hr=0.5, passes=13)

    made = search(storage, space, Effort(), evaluate)
    assert sum(trial.end == "finished" for trial in made) == 10


@pytest.mark.parametrize("done", [0, 1, 2, 5, 8])
def test_an_interrupted_search_goes_on_as_it_would_have(tmp_path, storage, done):
    """Whether it was told to stop in trial `done`, or killed: then Optuna has a trial that never ends."""
    first: tuple[dict[str, float], ...] = ({"rate": 0.9}, {})
    whole = search(tmp_path / "whole.log", SPACE, SMALL, climbing(), first=first)

    def stopped(options, heard):
        if len(trials_of(opened(storage))) == done:
            raise StoppedError("stopped")
        return climbing()(options, heard)

    with pytest.raises(StoppedError):
        search(storage, SPACE, SMALL, stopped, first=first)
    opened(storage).ask()
    assert len(trials_of(opened(storage))) == done
    again = search(storage, SPACE, SMALL, climbing(), first=first)
    assert settings(again) == settings(whole)
    assert [trial.curve for trial in again] == [trial.curve for trial in whole]


def test_a_storage_of_another_search_is_begun_anew(storage):
    search(storage, SPACE, Effort(trials=2), peak, asked={"reg": 1})
    made: list[int] = []
    search(storage, SPACE, Effort(trials=3), peak, asked={"reg": 2}, on_trial=lambda t: made.append(len(t)))
    assert made == [1, 2, 3]
    search(storage, SPACE, Effort(trials=4), peak, asked={"reg": 2}, on_trial=lambda t: made.append(len(t)))
    assert made == [1, 2, 3, 3, 4]


def test_proposals_are_numbers_as_a_preset_writes_them(storage):
    """So that a run with the preset repeats the trial."""
    for trial in search(storage, SPACE, SMALL, peak)[1:]:
        assert trial.options["rate"] == float(f"{trial.options['rate']:.4g}")


def test_a_stop_is_no_outcome_and_a_divergence_is_one(storage):
    def diverges(options, heard):
        if options:
            heard(0.1, 30.0)
            raise DivergedError("not finite")
        return Found(ndcg=0.1, hr=0.2, passes=20)

    made = search(storage, SPACE, Effort(trials=3, passes=20), diverges)
    assert [trial.end for trial in made[:3]] == ["finished", "failed", "failed"]
    assert made[1].error == "not finite"

    def stops(options, heard):
        raise StoppedError("stopped")

    with pytest.raises(StoppedError):
        search(storage, SPACE, SMALL, stops)


def test_a_search_in_which_everything_fails_says_so(storage):
    def diverges(options, heard):
        raise DivergedError("not finite")

    with pytest.raises(ConfigError, match="all 18 trials failed; the last error: not finite"):
        search(storage, SPACE, SMALL, diverges)


def test_full_length_counts_in_passes():
    effort = Effort(passes=100, patience=10)

    def length(method, **options):
        run = full_length(RunConfig(method=method, dataset="toy", options=options), effort, users=1000)
        return run.rounds, run.patience, run.evaluate_every

    assert length("fedmf") == (100, 10, 1)
    assert length("pfedclr") == (100, 10, 1)  # 0.6 of the clients
    assert length("fedhist", clients_per_round=0.2) == (500, 50, 5)
    assert length("fedease") == (1, None, 1)
    assert length("fedsasrec", clients_per_round=128) == (700, 70, 7)  # 7 · 128 = 896 of 1000 users
    assert length("fedsasrec", clients_per_round=2000) == (100, 10, 1)  # all, as there are no more


def test_passes_of_a_number_of_clients_need_the_number_of_users():
    config = RunConfig(method="fedsasrec", dataset="toy", options={"clients_per_round": 128})
    with pytest.raises(RunError, match="no number of users"):
        full_length(config, Effort(), users=None)


def test_final_runs_count_passes_over_all_users_where_trials_had_a_sample():
    """A pass of 1000 users takes 10 rounds of 100; in trials on 300 users it took 3."""
    entry = Tuning("fedsasrec", RunConfig(method="fedsasrec", dataset="toy"), seeds=(0,))
    options = {"clients_per_round": 100}
    assert entry.with_options(options, users=300).rounds == 300
    found = study("fedsasrec", trial(0.1, clients_per_round=100), users=1000)
    assert [final.config.rounds for final in entry.finals(found)] == [1000]


def test_a_sample_of_users_keeps_the_catalogue():
    users = [f"u{n}" for n in range(50) for _ in range(4)]
    items = [f"i{n % 97}" for n in range(200)]
    data = Interactions.from_columns("toy", users, items)
    some = some_users(data, 20)
    assert (some.n_users, some.n_items, len(some)) == (20, data.n_items, 80)
    assert some.user_map.ids.tolist() == some_users(data, 20).user_map.ids.tolist()
    for user in range(20):
        before = data.user_map.index(some.user_map.id(user))
        assert some.by_user.row(user).tolist() == data.by_user.row(before).tolist()
    assert some_users(data, 50) is data
    assert some_users(data, None) is data


def test_chance_is_the_mean_over_all_places():
    places = 1 + np.arange(40.0)
    assert chance(40) == pytest.approx(per_user(places, np.ones(40, np.int64))["ndcg@10"].mean())


def study(label: str, *trials: Trial, **more) -> Study:
    config = {"dataset": "toy", "patience": 9, "preset_rounds": 40, "preset_patience": 3}
    fields = {"label": label, "kind": "method", "dataset": "toy", "protocol": "strict", "seed": 0}
    fields |= {"config": config, "space": as_json(SPACE), "environment": {}, "code": {}, "trials": trials}
    return Study.model_validate(fields | more)


def trial(ndcg: float, end: str = "finished", **options) -> Trial:
    return Trial.model_validate({"options": options, "end": end, "ndcg": ndcg, "seconds": 1.0})


def test_the_best_finished_trial_becomes_a_preset():
    trials = (trial(0.1), trial(0.3, learning_rate=0.05, decays="0,1"), trial(0.4, "pruned"), trial(0.3))
    made = tomllib.loads(presets_of([study("fedmf+plgc", *trials)]))
    (name, fields), *_ = made.items()
    preset = Preset(name=name, **fields)
    assert name == "strict:fedmf+plgc/toy"
    assert (preset.method, preset.plugins) == ("fedmf", ("plgc",))
    assert (preset.settings["rounds"], preset.settings["patience"]) == (40, 3)
    assert preset.options == {"learning_rate": 0.05, "decays": "0,1"}
    assert "best of 4 trials" in preset.source


def test_a_preset_of_a_budget_has_a_full_runs_length():
    config = {"dataset": "toy", "effort": {"passes": 40, "patience": 4}}
    made = study("fedhist", trial(0.2), trial(0.3, clients_per_round=0.5), config=config)
    (fields,) = tomllib.loads(presets_of([made])).values()
    assert (fields["rounds"], fields["patience"]) == (80, 8)


def test_a_rejected_trial_is_not_the_best():
    made = study("fedmf", trial(0.1), trial(0.3), trial(0.3), trial(0.2))
    for expected in (0.3, 0.3, 0.2, 0.1):
        assert made.best.ndcg == expected
        made = made.without_best(1, "not finite")
    assert [each.trial for each in made.rejected] == [1, 2, 3, 0]
    with pytest.raises(RunError, match="all were rejected"):
        _ = made.best


def test_a_preset_is_read_as_it_was_meant():
    odd = trial(0.3, rate=0.123456, whole=192.0107207162606, tiny=1e-05, name='a "b" \\ c', none=[])
    (fields,) = tomllib.loads(presets_of([study('fed"mf', odd)])).values()
    wanted = {"rate": 0.1235, "whole": 192.0107207162606, "tiny": 1e-05, "name": 'a "b" \\ c', "none": []}
    assert fields["method"] == 'fed"mf'
    assert fields["options"] == wanted


def test_of_two_studies_of_a_model_the_later_counts():
    earlier, later = study("fedmf", trial(0.3, reg=0.25)), study("fedmf", trial(0.2, reg=0.5))
    (fields,) = tomllib.loads(presets_of([earlier, later])).values()
    assert fields["options"] == {"reg": 0.5}


def test_the_packages_presets_are_those_of_the_studies(pytestconfig):
    """Those of equal tuning, and of the earlier search where there is none (docs/guides/studies.md)."""
    root = pytestconfig.rootpath
    written = (root / "src/solera/runs/tuned.toml").read_text(encoding="utf-8")
    records = root / "experiments" / "records"
    studies = [*Store(records / "tuning", Study).all(), *Store(records / "strict-tuning", Study).all()]
    assert presets_of(studies) == written
    tuned = [preset for preset in presets().values() if preset.name.startswith("strict:")]
    assert all(preset.config().options for preset in tuned if preset.full_method != "popularity")


MATRIX = """
[[tune]]
datasets = ["ratings.csv"]
methods = ["fedmf", "fedease"]
baselines = ["popularity"]
trials = 3
passes = 4
patience = 2
space.fedmf.embedding_size = { choices = [4] }
"""


@pytest.mark.slow
def test_tune_then_presets(tmp_path, monkeypatch):
    text = ratings(tmp_path).read_text().replace("who,what,when", "user,item,time")
    (tmp_path / "ratings.csv").write_text(text)
    (tmp_path / "matrix.toml").write_text(MATRIX)
    monkeypatch.chdir(tmp_path)
    made = solera("bench", "tune", "matrix.toml", "--jobs", "2", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["records"] == 3
    again = solera("bench", "tune", "matrix.toml", "--json")
    assert json.loads(again.stdout)["made_now"] == []
    shown = solera("bench", "presets").stdout
    assert len(tomllib.loads(shown)) == 3
    assert '["strict:fedmf/ratings"]' in shown
    assert 'baseline = "popularity"' in shown
    costs = json.loads(solera("bench", "budgets", "--json").stdout)
    assert {row["label"]: row["trials"] for row in costs}["popularity"] == 1
    assert all(row["given"] <= row["ndcg"] for row in costs)
    shown = solera("bench", "budgets").stdout
    assert "ratings, strict" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_options_chosen_near_an_end_of_their_range_are_named():
    space = {"learning_rate": {"low": 1e-3, "high": 1.0, "log": True}, "local_epochs": {"choices": [1, 2]}}
    trials = [
        Trial(options={}, end="finished", ndcg=0.1, seconds=1),
        Trial(options={"learning_rate": 0.95, "local_epochs": 2}, end="finished", ndcg=0.3, seconds=1),
        Trial(options={"learning_rate": 0.1, "local_epochs": 1}, end="finished", ndcg=0.2, seconds=1),
    ]
    study = Study.model_construct(
        label="fedmf", dataset="d", protocol="strict", config={}, space=space, trials=tuple(trials)
    )
    assert spent(study).near_end == {"learning_rate": 0.95}
    assert narrow([spent(study)]) == "Near an end of the range that was searched: fedmf learning_rate 0.95."
    inner = study.model_copy(update={"trials": (trials[0], trials[2])})
    assert narrow([spent(inner)]) == ""


def test_nothing_tuned_here_is_worse_than_the_settings_it_began_with():
    studies = Store(Path(__file__).parents[2] / "experiments" / "records" / "strict-tuning", Study).all()
    assert studies
    for study in studies:
        cost = spent(study)
        assert cost.ndcg is not None
        assert cost.given is None or cost.given <= cost.ndcg, study.name


def tunings(path: Path) -> list[Tuning]:
    return [each for each in read_tuning(path).entries if isinstance(each, Tuning)]


def test_the_first_trials_are_the_papers_and_the_defaults(tmp_path):
    path = tmp_path / "matrix.toml"
    path.write_text(
        '[[tune]]\ndatasets = ["filmtrust", "beauty"]\nmethods = ["fedem", "fedrap", "fedmf", "fedslist"]\n'
        'first.fedslist = { decays = "0.8" }'
    )
    first = {(each.config.dataset, each.label): each.first for each in tunings(path)}
    paper = {name: presets()[f"paper:{name}"].options for name in ("fedem/filmtrust", "fedem/ml-100k")}
    assert first["filmtrust", "fedem"] == (paper["fedem/filmtrust"], {})
    assert first["beauty", "fedem"] == (paper["fedem/ml-100k"], {})  # no preset of its own
    assert len(first["filmtrust", "fedrap"]) == 2  # the paper's weight decay is on all rows
    assert first["filmtrust", "fedmf"][-1] == {}
    assert first["filmtrust", "fedslist"][-1] == {"decays": "0.8"}


def test_the_board_gives_everyone_the_same_effort(pytestconfig):
    found = tunings(pytestconfig.rootpath / "experiments" / "matrices" / "board.toml")
    assert {(each.effort.trials, each.effort.passes, each.effort.patience) for each in found} == {
        (10, 100, 30)
    }
    models: dict[str, set[str]] = {}
    for each in found:
        models.setdefault(each.asked.dataset, set()).add(each.label)
    assert len(set(map(frozenset, models.values()))) == 1, "the same models on every data set"
    published = {"fedmf", "fedncf", "pfedrec", "gpfedrec", "fedrap", "pfedclr", "fedem"}
    assert published <= models["ml-100k"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[tune]]\ndatasets = ["x"]\nmethods = ["fedrapp"]', "tune 1: unknown method 'fedrapp'"),
        ('[[tune]]\ndatasets = ["x"]\nmethods = ["fedmf+plgc"]', "tune 1: no search space for 'fedmf+plgc'"),
        ('[[tune]]\ndatasets = ["x"]\ntrials = 0', "tune 1: trials: "),
        ('[[tune]]\ndatasets = ["x"]\nmethods = ["fedmf"]\nbudget = 99', "tune 1: budget: no such setting"),
        ('[[run]]\ndatasets = ["x"]\nmethods = ["fedmf"]', "has no [[tune]]"),
        (
            '[[tune]]\ndatasets = ["x"]\nmethods = ["fedmf"]\n'
            '[[tune]]\ndatasets = ["x"]\nmethods = ["fedmf"]',
            "tune 2: fedmf on x, strict, 10 trials is listed twice",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_tuning(path)
    assert message in raised.value.message


# Cells: a search, its final runs, and what happens when one diverges or everything is interrupted

CELL = """
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
    found = matrix(tmp_path, CELL)
    (entry,) = found.entries
    return found, Job.of(found, entry, tmp_path / "work")


def finals(job):
    study = job.store.find(job.entry.asked.name)
    return study, [job.results.find(run.asked.name) for run in job.entry.finals(study)]


def test_a_cell_is_tuned_and_run_and_never_worse_than_its_first_trials(cell):
    found, job = cell
    assert make_plan(found).todo == [job.entry]
    steps: list[Step] = []
    assert perform(job, threading.Event(), steps.append).end == "done"
    study, records = finals(job)
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
    forget(job.results, records[1].name)
    assert make_plan(found).todo == [job.entry]


def test_settings_that_diverge_give_way_to_the_next_best_for_all_seeds(cell, monkeypatch):
    _, job = cell
    run, ran = Work.run, []

    def sometimes(work, entry):
        ran.append((entry.config.options, entry.config.seed))
        if entry.config.options == ran[0][0] and entry.config.seed == 1:
            raise DivergedError("the loss is not finite")
        return run(work, entry)

    monkeypatch.setattr(Work, "run", sometimes)
    perform(job, threading.Event(), lambda _: None)
    study, records = finals(job)
    (rejected,) = study.rejected
    assert (rejected.seed, rejected.why) == (1, "the loss is not finite")
    assert study.trials[rejected.trial].ndcg >= study.best.ndcg
    assert records[0].config["options"] == records[1].config["options"] != ran[0][0]
    assert [seed for _, seed in ran] == [0, 1, 0, 1]


@pytest.mark.parametrize(("chance", "rejected"), [(0.02, True), (0.9, False)])
def test_a_final_run_with_half_the_figure_of_its_trial_has_collapsed(cell, monkeypatch, chance, rejected):
    """Unless the trial had found nothing either: that is a figure up to twice that of a random order."""
    _, job = cell
    monkeypatch.setattr(worker, "chance", lambda _: chance)
    perform(job, threading.Event(), lambda _: None)
    study, records = finals(job)
    assert not study.rejected
    number = study.trials.index(study.best)
    worst = min(records, key=lambda record: record.result.validation.full["ndcg@10"])
    lucky = 2 * worst.result.validation.full["ndcg@10"]
    assert lucky > study.best.ndcg
    trials = [
        trial if n != number else trial.model_copy(update={"ndcg": lucky})
        for n, trial in enumerate(study.trials)
    ]
    job.store.put(study.model_copy(update={"trials": tuple(trials)}))
    forget(job.results, *(record.name for record in records))
    perform(job, threading.Event(), lambda _: None)
    study, records = finals(job)
    assert [(each.trial, each.seed) for each in study.rejected] == [(number, worst.seed)] * rejected
    assert all(f"in the trial it was {lucky:.4f}" in each.why for each in study.rejected)
    assert len(records) == 2


def test_when_all_settings_diverge_the_cell_has_failed(cell, monkeypatch):
    found, job = cell

    def diverges(*_):
        raise DivergedError("the loss is not finite")

    monkeypatch.setattr(Work, "run", diverges)
    assert perform(job, threading.Event(), lambda _: None).end == "failed"
    ((entry, error),) = make_plan(found).failed
    assert entry is job.entry
    assert "all were rejected" in error


@pytest.mark.parametrize("passes", [9, 27])  # in a trial, in a final run
def test_an_interrupted_cell_goes_on_to_the_same_end(cell, tmp_path, passes):
    _, job = cell
    stop = threading.Event()

    def report(step):
        if step.done >= passes:
            stop.set()

    assert perform(job, stop, report).end == "stopped"
    perform(job, threading.Event(), lambda _: None)
    study, records = finals(job)
    other = replace(job, folder=job.folder.with_name("other"), store=Store(tmp_path / "studies", Study))
    forget(job.results, *(record.name for record in records))
    assert perform(other, threading.Event(), lambda _: None).end == "done"
    whole = other.store.find(job.entry.asked.name)
    assert whole.best.options == study.best.options
    assert [trial.curve for trial in whole.trials] == [trial.curve for trial in study.trials]
    assert [job.results.find(record.name).ranks for record in records] == [each.ranks for each in records]


SOLVED = """
[[tune]]
datasets = ["ratings.csv"]
baselines = ["ease"]
seeds = [0]
trials = 3
"""


def test_a_search_without_rounds_stops_after_its_trial(cell, tmp_path):
    found = matrix(tmp_path, SOLVED)
    job = Job.of(found, found.entries[0], tmp_path / "ease")
    stop = threading.Event()
    assert perform(job, stop, lambda _: stop.set()).end == "stopped"
    assert len(trials_of(opened(job.folder / SEARCH))) == 1
    assert job.store.all() == []


def test_a_study_of_other_ranges_is_named_and_made_again(cell, tmp_path):
    _, job = cell
    perform(job, threading.Event(), lambda _: None)
    wider = matrix(tmp_path, CELL.replace("choices = [1] }", "choices = [1, 2] }"))
    with pytest.raises(RunError, match="other ranges of local_epochs") as caught:
        make_plan(wider)
    assert "--replace" in caught.value.hint
    (entry,) = make_plan(wider, replace=True).todo
    steps: list[Step] = []
    assert perform(replace(job, entry=entry), threading.Event(), steps.append).end == "done"
    assert steps[0].done <= 1, "no trial of the other search counts"
    assert job.store.find(entry.asked.name).space["local_epochs"] == {"choices": [1, 2]}
    assert make_plan(wider).recorded == [entry]
