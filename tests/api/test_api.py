"""The Python interface: what it takes, what it gives, and that it is level with the command line."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import Any

import numpy as np
import polars
import pytest
import torch

import solera
from solera import api
from solera.cli.compare import compare as compare_command
from solera.cli.recommend import recommend as recommend_command
from solera.cli.report import report as report_command
from solera.cli.train import train as train_command
from solera.core.errors import in_python
from solera.runs import recommending

# What has another name in Python, and what only a terminal needs.
NAMES = {"plugin": "plugins", "out_dir": "out", "option": "options", "workers": "threads"}
NAMES_OF_RECOMMEND = {"user": "users", "all_users": "users", "output": "path"}
TERMINAL = {"json", "plan"}
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


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_of_several_libraries_are_the_same_data(rows, data, library):
    table = importlib.import_module(library).DataFrame(rows)
    loaded = solera.load(table, columns=COLUMNS, name="films")
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
        (5, "int cannot be loaded as a data set"),
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
        ({"precision": "halb"}, "precision is 'halb'", "precision"),
        ({"protocol": "strikt"}, "protocol is 'strikt'", "protocol"),
        ({"learning": 1}, "has no option 'learning'", "learning_rate"),
        ({"rounds": 2, "patience": 1, "dp": "epsilon=8,delta=1e-5"}, "patience", "patience"),
    ],
)
def test_wrong_settings_are_errors_in_words(data, given, words, step):
    with pytest.raises(solera.SoleraError, match=words) as found:
        solera.train("fedmf", data, **given)
    hint = str(found.value).removeprefix(found.value.message)
    assert step in hint
    assert "--" not in hint


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


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_everybodys_recommendations_in_a_file(data, tmp_path, ending, monkeypatch):
    monkeypatch.setattr(recommending, "USERS_AT_A_TIME", 7)
    run = solera.train("fedmf", data, rounds=1, **SMALL)
    path, told = tmp_path / f"new/all.{ending}", []
    run.write_recommendations(path, k=3, on_users=lambda done, total: told.append((done, total)))
    read = polars.read_parquet(path) if ending == "parquet" else polars.read_csv(path)
    assert read.select("user", "rank", "item").equals(run.recommend_many(k=3).select("user", "rank", "item"))
    assert told == [(7, 30), (14, 30), (21, 30), (28, 30), (30, 30)]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_of_recommendations_that_cannot_be_written(data, tmp_path):
    run = solera.train("fedease", data)
    with pytest.raises(solera.SoleraError, match=r"ends in \.parquet or \.csv"):
        run.write_recommendations(tmp_path / "all.txt")
    with pytest.raises(solera.SoleraError, match="cannot be written"):
        run.write_recommendations("/dev/null/all.csv")
    with pytest.raises(solera.SoleraError, match="unknown user 'nobody'"):
        run.write_recommendations(tmp_path / "all.csv", ["u1", "nobody"])
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def two_tastes():
    """Two groups of users who like one half of the items each; w is in the first group."""
    draw = np.random.default_rng(1)
    pairs = [
        (f"u{user}", f"{'ab'[user % 2]}{item}")
        for user in range(60)
        for item in draw.choice(12, 8, replace=False)
    ]
    users, items = zip(*pairs, strict=True)
    return solera.load(polars.DataFrame({"user": users, "item": items}))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedmf", {"rounds": 100, "learning_rate": 0.5, "embedding_size": 8}),
        ("fedhist", {"rounds": 50, "learning_rate": 1.0}),
        ("fedease", {}),
    ],
)
def test_somebody_who_was_not_in_training_is_recommended_what_is_liked_alike(two_tastes, method, options):
    run = solera.train(method, two_tastes, progress=False, **options)
    for kind in "ab":
        known = [f"{kind}{item}" for item in range(6)]
        found = [each.item for each in run.recommend_for(known, 4)]
        assert not set(found) & set(known)
        assert sum(item.startswith(kind) for item in found) >= 3, (kind, found)


@pytest.mark.parametrize("method", ["pfedrec", "fedem", "fedrap"])
def test_somebody_new_changes_nothing_for_the_others(two_tastes, method):
    run = solera.train(method, two_tastes, rounds=2, **SMALL)
    before = run.recommend_many(k=4)
    found = run.recommend_for(["a1", "b2"], 30, rounds=3)
    assert len({each.item for each in found} - {"a1", "b2"}) == 22
    assert [each.score for each in found] != [each.score for each in run.recommend_for(["a5"], 30)][:22]
    assert run.recommend_many(k=4).equals(before)


def test_a_history_that_is_none(two_tastes):
    run = solera.train("fedease", two_tastes)
    with pytest.raises(solera.SoleraError, match="has no items"):
        run.recommend_for([])


@pytest.mark.parametrize(
    ("method", "options"), [("fedmf", {"rounds": 60, "learning_rate": 0.5}), ("fedease", {})]
)
def test_similar_items_are_liked_by_the_same_people(two_tastes, method, options):
    run = solera.train(method, two_tastes, **options)
    found = run.similar("a3", 5)
    assert "a3" not in [each.item for each in found]
    assert [each.item[0] for each in found] == ["a"] * 5
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_items_of_which_nothing_is_shared_are_not_alike(data):
    with pytest.raises(solera.SoleraError, match="has no shared item vectors"):
        solera.train("local", data, rounds=1, **SMALL).similar("i1")


def test_a_report_of_runs(data, tmp_path):
    run = solera.train("fedmf", data, rounds=2, out=tmp_path / "run", **SMALL)
    assert solera.report([run, tmp_path / "run"], tmp_path / "a/b.html") == [tmp_path / "a/b.html"]
    assert "fedmf" in (tmp_path / "a/b.html").read_text()
    with pytest.raises(solera.SoleraError, match="was not written to a folder"):
        solera.report(solera.train("fedmf", data, rounds=1, **SMALL), tmp_path / "b.html")


def test_baselines_and_comparisons(data):
    fitted = solera.baseline("ease", data, reg=20.0)
    assert fitted.result.options["reg"] == 20
    assert fitted.metrics.height == 6
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
        (compare_command, api.compare),
        (recommend_command, api.Run.write_recommendations),
        (report_command, api.report),
    ],
)
def test_the_interface_takes_what_the_command_takes(command, function):
    taken = inspect.signature(function).parameters
    renamed = NAMES | (NAMES_OF_RECOMMEND if command is recommend_command else {})
    wanted = {renamed.get(name, name) for name in inspect.signature(command).parameters} - TERMINAL
    wanted -= {"run", "data_dir"} if command is recommend_command else set()  # open_run's
    # Run.recommend_for and Run.similar
    wanted -= {"history", "like"} if command is recommend_command else set()
    wanted -= {"workers"}  # a program of one's own is started by torchrun
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
    assert in_python(words) == expected
