"""Equal tuning: as many trials for everyone, on validation alone, and interruptions do not show."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from benchmark import ratings

from in_process import solera
from solera.bench.best import presets_of
from solera.bench.budgets import narrow, spent
from solera.bench.effort import Effort, chance, full_length, some_users
from solera.bench.entries import Tuning
from solera.bench.matrix import read_tuning
from solera.bench.spaces import Range, as_json
from solera.bench.studies import Study, read_studies
from solera.bench.trials import Found, Trial
from solera.bench.tuning import search
from solera.core.errors import ConfigError, DivergedError, RunError
from solera.data.interactions import Interactions
from solera.evaluate.metrics import per_user
from solera.runs import RunConfig, StoppedError
from solera.runs.presets import Preset, presets

SPACE = {"rate": Range(low=0.01, high=1.0, log=True), "size": Range(choices=[8, 16])}
SMALL = Effort(trials=9, passes=20, patience=5)


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


def test_the_first_trials_are_as_given_and_all_others_lie_in_the_space():
    first, second, *others = search(SPACE, SMALL, peak, first=({"rate": 5.0}, {}))
    assert first.options == {"rate": 5.0}
    assert second.options == {}
    assert len(others) == 7
    assert all(0.01 <= trial.options["rate"] <= 1 and trial.options["size"] in (8, 16) for trial in others)


def test_a_search_without_options_is_its_first_trials():
    assert settings(search({}, SMALL, peak)) == [{}]


def test_every_trial_runs_as_long_as_it_would_alone():
    """The worst of all too: nothing is pruned, so slow learners are not stopped for a slow start."""
    made = search(SPACE, SMALL, climbing())
    assert [len(trial.curve) for trial in made] == [20] * 9
    assert {trial.end for trial in made} == {"finished"}


def test_a_slow_learner_wins_the_search_that_its_figures_deserve():
    """At chance for 25 passes, then above all others: successive halving at 5 passes would have ended it."""

    def evaluate(options, heard):
        slow = options.get("rate", 1.0) < 0.1
        for n in range(1, 41):
            heard(figure := (0.0 if n <= 25 else 0.5) if slow else 0.1, float(n))
        return Found(ndcg=figure, hr=0.5, rounds=40, passes=40)

    made = search(SPACE, SMALL, evaluate)
    assert max(made, key=lambda trial: trial.ndcg or 0).options["rate"] < 0.1


def test_a_trial_that_fails_is_replaced_up_to_as_many_again():
    def fails(options, heard):
        if options.get("rate", 0.5) > 0.2:
            raise RuntimeError("singular")
        return Found(ndcg=0.1, hr=0.2, passes=20)

    made = search(SPACE, SMALL, fails)
    assert sum(trial.end == "finished" for trial in made) == SMALL.trials
    assert made[0].error == "RuntimeError: singular"

    def fails_mostly(options, heard):
        if options:
            raise RuntimeError("singular")
        return Found(ndcg=0.1, hr=0.2, passes=20)

    assert len(search(SPACE, SMALL, fails_mostly)) == 2 * SMALL.trials


def test_a_search_learns_where_settings_fail():
    """Two rates whose product must not be large, as PFedRec's; a search once failed 310 times of 314."""
    space = {"rate": Range(low=0.01, high=1, log=True), "item_rate": Range(low=1, high=300, log=True)}

    def evaluate(options, heard):
        product = options.get("rate", 0.1) * options.get("item_rate", 80)
        if product > 10:
            raise DivergedError("not finite")
        return Found(ndcg=product / 100, hr=0.5, passes=13)

    made = search(space, Effort(), evaluate)
    assert sum(trial.end == "finished" for trial in made) == 10


@pytest.mark.parametrize("done", [1, 2, 5, 8])
def test_an_interrupted_search_goes_on_as_it_would_have(done):
    whole = search(SPACE, SMALL, climbing(), first=({"rate": 0.9}, {}))
    again = search(SPACE, SMALL, climbing(), first=({"rate": 0.9}, {}), done=whole[:done])
    assert settings(again) == settings(whole)
    assert [trial.curve for trial in again] == [trial.curve for trial in whole]


def test_a_stop_is_no_outcome_and_a_divergence_is_one():
    def diverges(options, heard):
        if options:
            heard(0.1, 30.0)
            raise DivergedError("not finite")
        return Found(ndcg=0.1, hr=0.2, passes=20)

    made = search(SPACE, Effort(trials=3, passes=20), diverges)
    assert [trial.end for trial in made[:3]] == ["finished", "failed", "failed"]
    assert made[1].error == "not finite"

    def stops(options, heard):
        raise StoppedError("stopped")

    with pytest.raises(StoppedError):
        search(SPACE, SMALL, stops)


def test_a_search_in_which_everything_fails_says_so():
    def diverges(options, heard):
        raise DivergedError("not finite")

    with pytest.raises(ConfigError, match="all 18 trials failed; the last error: not finite"):
        search(SPACE, SMALL, diverges)


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


def test_a_preset_of_a_study_of_0_2_runs_to_the_end_as_its_final_runs_did():
    config = {
        "dataset": "toy",
        "effort": {"passes": 40, "patience": 4, "budget": 350, "rung": 5, "trials": 24},
    }
    (fields,) = tomllib.loads(presets_of([study("fedmf", trial(0.3), config=config)])).values()
    assert fields["rounds"] == 40
    assert "patience" not in fields


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
    """Those of equal tuning, and of the earlier search where there is none (docs/benchmarks.md)."""
    root = pytestconfig.rootpath
    written = (root / "src/solera/runs/tuned.toml").read_text(encoding="utf-8")
    records = root / "experiments" / "records"
    studies = [*read_studies(records / "tuning"), *read_studies(records / "strict-tuning")]
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
    studies = read_studies(Path(__file__).parents[2] / "experiments" / "records" / "strict-tuning")
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
