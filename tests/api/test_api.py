"""The Python interface: what it takes, what it gives, and that it is level with the command line."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch

import solera
from solera import api
from solera.cli.compare import compare as compare_command
from solera.cli.runs import baseline as baseline_command
from solera.cli.runs import recommend as recommend_command
from solera.cli.runs import train as train_command

# What has another name in Python, and what only a terminal needs.
NAMES = {"plugin": "plugins", "out_dir": "out", "option": "options", "workers": "threads"}
TERMINAL = {"json"}
SMALL: dict[str, Any] = {"embedding_size": 4, "local_epochs": 1}


@pytest.fixture(scope="module")
def rows() -> dict[str, list]:
    draw = np.random.default_rng(0)
    pairs = [(f"u{u}", f"i{i}") for u in range(30) for i in draw.choice(20, 8, replace=False)]
    return {
        "who": [user for user, _ in pairs],
        "what": [item for _, item in pairs],
        "time": list(range(len(pairs))),
    }


COLUMNS = {"user": "who", "item": "what"}


@pytest.fixture(scope="module")
def data(rows):
    return solera.load(polars.DataFrame(rows), columns=COLUMNS, name="films")


@pytest.mark.parametrize("library", [pandas.DataFrame, polars.DataFrame])
def test_tables_of_several_libraries_are_the_same_data(rows, data, library):
    loaded = solera.load(library(rows), columns=COLUMNS, name="films")
    assert repr(loaded) == repr(data) == "<films: 30 users, 20 items, 240 interactions, with times>"
    assert np.array_equal(loaded.items, data.items)
    assert loaded.times is not None
    assert np.array_equal(loaded.times, data.times)


def test_an_arrow_table(rows, data):
    arrow = pytest.importorskip("pyarrow")
    assert np.array_equal(solera.load(arrow.table(rows), columns=COLUMNS).items, data.items)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (5, "int is nothing that can be loaded"),
        (polars.DataFrame({"user": [], "item": []}), "has no rows"),
        (
            polars.DataFrame({"user": ["a", None], "item": ["x", "y"]}),
            "row 2: the id in column 'user' is empty",
        ),
        (polars.DataFrame({"a": [1]}), "no column found for the user"),
    ],
)
def test_what_cannot_be_loaded(source, words):
    with pytest.raises(solera.SoleraError, match=words):
        solera.load(source)


@pytest.mark.parametrize("method", ["fedmf", "fedease"])
def test_a_run_on_a_table_is_opened_and_resumed(data, tmp_path, method):
    options: dict[str, Any] = SMALL | {"rounds": 2} if method == "fedmf" else {}
    run = solera.train(method, data, out=tmp_path / "run", **options)
    again = solera.open_run(tmp_path / "run")
    assert again.data.name == "films"
    assert again.result == run.result
    assert again.history.equals(run.history)
    one, other = (each.recommend("u3", 5) for each in (run, again))
    assert [item.item for item in one] == [item.item for item in other]
    resumed = solera.train(method, data, out=tmp_path / "run", resume=True, **options)
    assert resumed.result == run.result


def test_a_run_on_a_file_is_opened(rows, tmp_path):
    polars.DataFrame(rows).write_csv(tmp_path / "mine.csv")
    data = solera.load(tmp_path / "mine.csv", columns=COLUMNS, min_interactions=3)
    run = solera.train("fedmf", data, rounds=1, out=tmp_path / "run", **SMALL)
    again = solera.open_run(tmp_path / "run")
    assert again.result == run.result
    assert not (tmp_path / "run" / "data.parquet").exists()


@pytest.mark.parametrize(
    ("given", "words", "step"),
    [
        ({"rounds": 0}, "rounds is 0", "rounds"),
        ({"rounds": -1}, "rounds is -1", "rounds"),
        ({"rounds": 1.5}, "rounds is 1.5", "rounds"),
        ({"seed": -1}, "seed is -1", "seed"),
        ({"engine": "blok"}, "engine is 'blok'", "engine"),
        ({"protocol": "strikt"}, "unknown protocol", "strict"),
        ({"learning": 1}, "has no option 'learning'", "learning_rate"),
        ({"rounds": 2, "patience": 1, "dp": "epsilon=8,delta=1e-5"}, "patience", "patience"),
    ],
)
def test_wrong_settings_are_errors_in_words(data, given, words, step):
    with pytest.raises(solera.SoleraError, match=words) as found:
        solera.train("fedmf", data, **given)
    assert step in found.value.hint
    assert "--" not in found.value.hint


def test_tables_of_a_run(data):
    run = solera.train("fedmf", data, rounds=3, **SMALL)
    assert run.history["round"].to_list() == [1, 2, 3]
    assert {"loss", "validation.full.ndcg@10"} <= set(run.history.columns)
    by = run.metrics.filter(items="test", ranking="full")
    assert by["ndcg@10"].item() == run.test["full"]["ndcg@10"]
    assert repr(run).startswith("<fedmf on films (strict): test HR@10 ")


def test_recommendations_for_one_for_many_and_for_everybody(data):
    run = solera.train("fedease", data)
    one = run.recommend("u3", 4)
    many = run.recommend_many(["u3", "u5"], 4)
    assert many.filter(user="u3")["item"].to_list() == [each.item for each in one]
    everybody = run.recommend_many(k=4)
    assert everybody["user"].n_unique() == 30
    assert everybody.filter(user="u5").equals(many.filter(user="u5"))
    known = set(zip(*(data.frame()[name].to_list() for name in ("user", "item")), strict=True))
    assert not known & set(zip(everybody["user"].to_list(), everybody["item"].to_list(), strict=True))


def test_only_some_items_and_without_others(data):
    run = solera.train("fedease", data)
    best = [each.item for each in run.recommend("u3", 20)]
    assert [each.item for each in run.recommend("u3", 20, without=best[:2])] == best[2:]
    assert [each.item for each in run.recommend("u3", 20, only=best[3:6])] == best[3:6]
    with pytest.raises(solera.SoleraError, match="unknown item 'x'"):
        run.recommend("u3", only=["x"])
    with pytest.raises(solera.SoleraError, match="cannot recommend 0 items"):
        run.recommend("u3", 0)


def test_baselines_and_comparisons(data):
    fitted = solera.baseline("ease", data, reg=20.0)
    assert fitted.result["options"]["reg"] == 20
    assert fitted.metrics.height == 4
    table = solera.compare(["fedmf", "fedease"], data, baselines=["popularity"], rounds=1)
    assert set(table["method"]) == {"fedmf", "fedease", "popularity"}
    assert "ndcg@10" in table.columns


def test_a_recommender_of_ones_own(data):
    """Scores that are the popularity baseline's give its figures."""
    parts = solera.baseline("popularity", data).split
    counts = np.bincount(parts.train.values, minlength=data.n_items)

    def score(users):
        return torch.from_numpy(counts).double().expand(len(users), -1)

    found = solera.evaluate(score, data).filter(items="test", ranking="full")
    wanted = solera.baseline("popularity", data).metrics.filter(items="test", ranking="full")
    assert found["ndcg@10"].item() == pytest.approx(wanted["ndcg@10"].item(), abs=0.05)


def test_what_there_is():
    assert {"fedmf", "+elastic-merge", "ease"} <= set(solera.methods()["name"])
    assert "ml-100k" in solera.datasets()["name"].to_list()
    assert any(name.startswith("paper:") for name in solera.presets()["name"])
    assert hasattr(solera.methods, "find")  # the package of that name is still there
    assert {"load", "train", "compare", "open_run"} <= set(dir(solera))


def test_nothing_heavy_is_loaded_before_it_is_asked_for():
    code = "import solera, sys; dir(solera); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("command", "function"),
    [
        (train_command, api.train),
        (baseline_command, api.baseline),
        (compare_command, api.compare),
        (recommend_command, api.Run.recommend_many),
    ],
)
def test_the_interface_takes_what_the_command_takes(command, function):
    taken = inspect.signature(function).parameters
    wanted = {NAMES.get(name, name) for name in inspect.signature(command).parameters} - TERMINAL
    wanted -= {"run", "data_dir", "user"} if command is recommend_command else set()
    wanted -= {"out"} if command is compare_command else set()  # records are the command's
    assert wanted <= taken.keys()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("give --min-interactions 5", "give min_interactions 5"),
        ("leave -o reg=1 out", "leave reg=1 out"),
        ("give -k 1 or more", "give k=1 or more"),
        ("a well-known --dp", "a well-known dp"),
    ],
)
def test_next_steps_in_pythons_words(words, expected):
    assert api.in_python(words) == expected
