"""Blends of two models: their scores, the weight, the folder, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import solera
from in_process import solera as command
from made_ratings import random_histories
from solera.core.errors import ConfigError, RunError
from solera.data.interactions import history
from solera.runs import Run
from solera.runs.blend import WEIGHTS
from solera.runs.recommending import mixed, standardised


@pytest.fixture(scope="module")
def data():
    return random_histories(users=40, items=30)


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    options: dict[str, Any] = {"embedding_size": 8, "layers": 1, "max_length": 10}
    options |= {"warmup": 2, "clients_per_round": 1.0}
    return (
        solera.train("fedslist", data, out=folder / "closed"),
        solera.train("fedsasrec", data, rounds=3, out=folder / "trained", **options),
    )


def test_scores_by_hand():
    """(1, 3) and (5, 5, …): mean 2, deviation 1 gives (−1, 1); equal scores are all 0."""
    scores = standardised(torch.tensor([[1.0, 3.0], [5.0, 5.0]]))
    assert scores.tolist() == [[-1.0, 1.0], [0.0, 0.0]]
    assert mixed(torch.tensor([[1.0, 3.0]]), torch.tensor([[8.0, 4.0]]), 0.25).tolist() == [[-0.5, 0.5]]
    assert WEIGHTS[:6] == (0.0, 0.01, 0.02, 0.03, 0.05, 0.1)
    assert WEIGHTS[-6:] == (0.9, 0.95, 0.97, 0.98, 0.99, 1.0)
    assert len(WEIGHTS) == 27


def test_a_blend_is_at_least_as_good_on_validation_as_either(runs):
    both = solera.blend(*runs)
    figures = [run.result.validation.full["ndcg@10"] for run in (both, *runs)]
    assert figures[0] >= max(figures)
    assert both.result.options["weight"] in WEIGHTS


def test_the_weights_are_tried_as_the_models_are_validated(runs):
    """Weights 0 and 1 are the models alone: standardising does not change an order."""
    for first in runs:
        alone = solera.blend(first, first)
        assert alone.result.options["weight"] == 0.0
        assert alone.result.test.full == pytest.approx(first.result.test.full)
        assert alone.result.test_train.full == pytest.approx(first.result.test_train.full)


def test_a_folder_of_a_blend_is_like_one_of_a_run(runs, tmp_path):
    both = solera.blend(*(run.path for run in runs), out=tmp_path / "deep" / "both")
    again = solera.open_run(tmp_path / "deep" / "both")
    assert again.result == both.result
    known, users = history(again.parts, "test"), np.arange(5)
    torch.testing.assert_close(again.serve(known)(users), both.serve(known)(users))
    assert again.recommend("u3", 4) == both.recommend("u3", 4)
    assert len(again.recommend_for(["i1", "i2"], 3)) == 3
    assert again.evaluate().full == pytest.approx(both.result.test.full)
    assert again.evaluate("test_train").full == pytest.approx(both.result.test_train.full)
    with pytest.raises(RunError, match="no item vectors"):
        again.similar("i1")
    with pytest.raises(RunError, match="already exists"):
        solera.blend(*runs, out=tmp_path / "deep" / "both")


def test_a_damaged_folder_is_refused(runs, tmp_path):
    solera.blend(*runs, out=tmp_path / "both")
    (tmp_path / "both" / "blend.json").write_text(json.dumps({"weight": "much"}), encoding="utf-8")
    with pytest.raises(RunError, match="cannot be read"):
        Run.open(tmp_path / "both")


def test_baselines_are_blended_like_runs(data):
    """The comparison is fair only if centralized models are blended by the same rule."""
    both = solera.blend(
        solera.baseline("slist", data), solera.baseline("sasrec", data, epochs=1, embedding_size=8)
    )
    assert both.result.method == "slist & sasrec"
    assert len(both.recommend("u3", 2)) == 2
    with pytest.raises(RunError, match="not written to a folder"):
        solera.blend(solera.baseline("slist", data), solera.baseline("ease", data), out="nowhere")


def test_a_blend_of_baselines_is_tested_with_both_histories(data):
    """A model with itself is itself, with the training items alone and with the validation item."""
    alone = solera.baseline("sasrec", data, epochs=1, embedding_size=8)
    same = solera.blend(alone, alone).result
    assert same.test_train.full == pytest.approx(alone.result.test_train.full)
    assert same.test.full == pytest.approx(alone.result.test.full)
    assert same.test_train.full != same.test.full


def test_the_command_fits_baselines_of_presets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["user,item,time", *(f"u{n % 20},i{n * 7 % 31},{n}" for n in range(200))]
    (tmp_path / "own.csv").write_text("\n".join(rows), encoding="utf-8")
    for name, kind in (("slist", "baseline"), ("ease", "baseline"), ("fedslist", "method")):
        text = (
            f'["{name}/own"]\n{kind} = "{name}"\ndataset = "own.csv"\nprotocol = "strict"\nsource = "test"\n'
        )
        (tmp_path / f"{name}.toml").write_text(text + "rounds = 1\n", encoding="utf-8")
    said = command("blend", "slist.toml", "ease.toml", "--json")
    result = json.loads(said.stdout)
    assert result["method"] == "slist & ease"
    assert result["test_train"]["full"].keys() == result["test"]["full"].keys()
    refused = command("blend", "slist.toml", "fedslist.toml")
    assert "is for a method" in refused.stderr
    refused = command("blend", "slist.toml", "ease.toml", "--out", "both")
    assert "not written to a folder" in refused.stderr


def test_models_that_do_not_fit_are_refused(data, runs):
    with pytest.raises(ConfigError, match="histories alone"):
        solera.blend(runs[0], solera.train("fedmf", data, rounds=1))
    other = solera.train("fedslist", data, protocol="paper")
    with pytest.raises(ConfigError, match="different protocol"):
        solera.blend(runs[0], other)
