"""Equal tuning: as many trials for everyone, on validation alone, and interruptions do not show."""

from __future__ import annotations

import json
import threading
import tomllib

import pytest
from benchmark import ratings

from in_process import solera
from solera.baselines import BASELINES, configure
from solera.bench.best import presets_of
from solera.bench.matrix import read_tuning
from solera.bench.spaces import Range, as_json, spaces
from solera.bench.studies import Study, read_studies
from solera.bench.trials import Found, Trial
from solera.bench.tuning import search
from solera.bench.worker import Job, perform
from solera.core.errors import ConfigError, DivergedError
from solera.methods import find
from solera.runs import StoppedError
from solera.runs.presets import Preset, presets

SPACE = {"rate": Range(low=0.01, high=1.0, log=True), "size": Range(choices=[8, 16])}


def peak(options, heard):
    """Best at a rate of 0.1; the defaults are at 1."""
    return Found(ndcg=1 / (1 + abs(options.get("rate", 1.0) - 0.1)), hr=0.5, rounds=1)


def test_the_first_trial_is_of_the_defaults_and_all_lie_in_the_space():
    first, *others = search(SPACE, 9, peak)
    assert first.options == {}
    assert len(others) == 8
    assert all(0.01 <= trial.options["rate"] <= 1 and trial.options["size"] in (8, 16) for trial in others)


def test_the_first_trial_may_be_another():
    first, second = search(SPACE, 2, peak, first={"rate": 0.1})
    assert first.options == {"rate": 0.1}
    assert first.ndcg == 1
    assert second.options.keys() == {"rate", "size"}


def test_a_search_without_options_is_one_trial():
    assert len(search({}, 9, peak)) == 1


def test_an_interrupted_search_goes_on_as_it_would_have():
    def options(trials):
        return [trial.options for trial in trials]

    whole = search(SPACE, 8, peak)
    assert options(search(SPACE, 8, peak, done=whole[:5])) == options(whole)


def test_a_stop_is_no_outcome_and_a_divergence_is_one():
    def diverges(options, heard):
        if options:
            raise DivergedError("not finite")
        return Found(ndcg=0.1, hr=0.2)

    made = search(SPACE, 3, diverges)
    assert [trial.end for trial in made] == ["finished", "failed", "failed"]
    assert made[1].error == "not finite"

    def stops(options, heard):
        raise StoppedError("stopped")

    with pytest.raises(StoppedError):
        search(SPACE, 3, stops)


def test_a_search_in_which_everything_fails_says_so():
    def diverges(options, heard):
        raise DivergedError("not finite")

    with pytest.raises(ConfigError, match="all 2 trials failed; the last error: not finite"):
        search(SPACE, 2, diverges)


def test_what_is_worse_than_most_at_the_same_round_is_pruned():
    def curve(options, heard):
        best = 0.5 if not options else 1 - options["rate"]
        for round_ in range(20):
            heard(best * round_)
        return Found(ndcg=best * 19, hr=0.5, rounds=20)

    made = search(SPACE, 12, curve)
    pruned = [trial for trial in made if trial.end == "pruned"]
    assert pruned
    assert all(4 <= (trial.rounds or 0) < 20 for trial in pruned)
    assert max(made, key=lambda trial: trial.ndcg or 0).end == "finished"


@pytest.mark.parametrize("name", spaces())
def test_every_space_is_of_options_that_exist(name):
    """Both ends of every range are taken, and every choice."""
    first, *plugins = name.split("+")
    for option, where in spaces()[name].items():
        for value in where.choices or (where.low, where.high):
            if name in BASELINES:
                configure(name, {option: value})
            else:
                find(first, {option: value}, plugins)


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
    assert (preset.method, preset.plugins, preset.rounds, preset.patience) == ("fedmf", ("plgc",), 40, 3)
    assert preset.options == {"learning_rate": 0.05, "decays": "0,1"}
    assert "best of 4 trials" in preset.source


def test_a_preset_is_read_as_it_was_meant():
    odd = trial(0.3, rate=0.123456, whole=192.0107207162606, tiny=1e-05, name='a "b" \\ c', none=[])
    (fields,) = tomllib.loads(presets_of([study('fed"mf', odd)])).values()
    wanted = {"rate": 0.1235, "whole": 192.0107207162606, "tiny": 1e-05, "name": 'a "b" \\ c', "none": []}
    assert fields["method"] == 'fed"mf'
    assert fields["options"] == wanted


def test_the_packages_presets_are_those_of_the_studies(pytestconfig):
    """`solera bench presets -o src/solera/runs/tuned.toml`."""
    root = pytestconfig.rootpath
    written = (root / "src/solera/runs/tuned.toml").read_text(encoding="utf-8")
    assert presets_of(read_studies(root / "experiments" / "records" / "tuning")) == written
    tuned = [preset for preset in presets().values() if preset.name.startswith("strict:")]
    assert all(preset.config().options for preset in tuned if preset.full_method != "popularity")


MATRIX = """
[[tune]]
datasets = ["ratings.csv"]
methods = ["fedmf", "fedease"]
baselines = ["popularity"]
trials = 3
trial_rounds = 2
trial_patience = 2
rounds = 5
space.fedmf.embedding_size = { choices = [4] }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    text = ratings(tmp_path).read_text().replace("who,what,when", "user,item,time")
    (tmp_path / "ratings.csv").write_text(text)
    (tmp_path / "matrix.toml").write_text(MATRIX)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_worker_makes_a_study_and_takes_up_one_that_was_begun(folder):
    entry = read_tuning(folder / "matrix.toml").entries[0]
    assert entry.config.rounds == 2
    job = Job(entry, folder / "study.json", folder / "work", None)
    stop, steps = threading.Event(), []

    def report(step):
        steps.append(step)
        stop.set()  # in the middle of the second trial

    perform(job, stop, report)
    assert not job.record.exists()
    assert len(entry.read(job.folder / "study.json").trials) == 1
    perform(job, threading.Event(), steps.append)
    made = entry.read(job.record)
    assert [step.done for step in steps] == [1, 2, 3]
    assert len(made.trials) == 3
    assert {t.options.get("embedding_size", 4) for t in made.trials} == {4}
    assert not job.folder.exists()


@pytest.mark.slow
def test_tune_then_presets(folder):
    made = solera("bench", "tune", "matrix.toml", "--jobs", "2", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["records"] == 3
    again = solera("bench", "tune", "matrix.toml", "--json")
    assert json.loads(again.stdout)["made_now"] == []
    shown = solera("bench", "presets").stdout
    assert len(tomllib.loads(shown)) == 3
    assert '["strict:fedmf/ratings"]' in shown
    assert 'baseline = "popularity"' in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[tune]]\ndatasets = ["x"]\nmethods = ["fedrapp"]', "tune 1: unknown method 'fedrapp'"),
        ('[[tune]]\ndatasets = ["x"]\nmethods = ["fedrap-c"]', "tune 1: no search space for 'fedrap-c'"),
        ('[[tune]]\ndatasets = ["x"]\ntrials = 0', "tune 1: trials: "),
        ('[[run]]\ndatasets = ["x"]\nmethods = ["fedmf"]', "has no [[tune]]"),
        (
            '[[tune]]\ndatasets = ["x"]\nmethods = ["fedmf"]\n'
            '[[tune]]\ndatasets = ["x"]\nmethods = ["fedmf"]',
            "tune 2: fedmf on x, 8 trials is listed twice",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_tuning(path)
    assert message in raised.value.message
