"""A matrix is what it says, and everything wrong in it is said before anything runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from benchmark import OWN, entries, matrix, ratings

from solera.core.errors import ConfigError
from solera.data.registry import REGISTRY
from solera.runs.presets import Preset
from solera.runs.settings import BaselineConfig, RunConfig
from solera.study.matrix import _SETTINGS, _RunTable, read_matrix, read_tuning, side_by_side
from solera.study.records import Record


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with a data set in it, and none of the known ones."""
    ratings(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOLERA_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_all_combinations_in_the_order_of_the_file(folder):
    made = matrix(
        folder,
        """
        [[run]]
        datasets = ["ml-100k", "ml-1m"]
        methods = ["fedmf", "fedncf+elastic-merge"]
        protocols = ["paper", "strict"]
        seeds = [3, 1]
        rounds = 7
        options = { embedding_size = 4 }

        [[run]]
        datasets = ["ml-100k"]
        baselines = ["ease"]
        options = { reg = 20 }
        """,
    )
    assert made.results.name == "results"
    names = [entry.asked.name for entry in made.entries]
    assert names[:6] == [
        "ml-100k/fedmf--paper--s3",
        "ml-100k/fedmf--paper--s1",
        "ml-100k/fedncf+elastic-merge--paper--s3",
        "ml-100k/fedncf+elastic-merge--paper--s1",
        "ml-100k/fedmf--strict--s3",
        "ml-100k/fedmf--strict--s1",
    ]
    assert names[8] == "ml-1m/fedmf--paper--s3"
    assert names[16:] == ["ml-100k/ease--strict--s0"]
    config = made.entries[2].config
    assert isinstance(config, RunConfig)
    assert (config.method, config.plugins, config.rounds) == ("fedncf", ("elastic-merge",), 7)
    assert config.options["embedding_size"] == 4
    assert "adapter_learning_rate" in config.options, "the plug-in's options, defaults included"
    central = made.entries[16].config
    assert isinstance(central, BaselineConfig)
    assert (central.baseline, central.dataset) == ("ease", "ml-100k")
    assert central.options["reg"] == 20.0
    assert central.options["recency"] == 1.0, "defaults included"


def test_presets_bring_their_own_settings(folder):
    own, strict, other = entries(
        folder,
        """
        results = "elsewhere/records"
        [[run]]
        presets = ["paper:fedrap/ml-100k"]
        seeds = [5]
        [[run]]
        presets = ["paper:fedrap/ml-100k", "paper:fedncf+elastic-merge/ml-100k"]
        protocols = ["strict"]
        """,
    )
    assert own.preset == own.label == "paper:fedrap/ml-100k"
    assert (own.config.protocol, own.config.seed, own.config.rounds) == ("paper", 5, 100)
    assert own.config.options["learning_rate"] == "0.0001*0.97^round"
    assert own.asked.name == "ml-100k/paper-fedrap-ml-100k--paper--s5"
    assert (strict.config.protocol, strict.config.options) == ("strict", own.config.options)
    assert other.config.full_method == "fedncf+elastic-merge"


def test_a_file_of_ones_own_and_a_label(folder):
    (entry,) = entries(folder, f'[[run]]\n{OWN}methods = ["fedmf"]\nlabel = "FedMF, d = 16"\n')
    assert entry.config.dataset == "ratings.csv"
    assert entry.config.rounds == 100
    assert entry.asked.label == "FedMF, d = 16"
    assert entry.asked.name == "ratings/fedmf-d-=-16--strict--s0"


def test_a_method_of_one_round_takes_one(folder):
    several, one = entries(folder, f'[[run]]\n{OWN}methods = ["fedmf", "fedease"]\nrounds = 9\n')
    assert (several.config.rounds, one.config.rounds) == (9, 1)


METHOD = f'[[run]]\n{OWN}methods = ["fedmf"]\n'


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[[run]\n", "is not TOML: .*line 1", "docs/guides/studies.md"),
        ("", "has no \\[\\[run", "docs/guides/studies.md"),
        ("run = []", "has no \\[\\[run", "docs/guides/studies.md"),
        ("folder = 3\n" + METHOD, "folder: no such setting", "docs/guides/studies.md"),
        (METHOD + "epochs = 3", "run 1: epochs: no such setting", "docs/guides/studies.md"),
        (METHOD + "rounds = 0", "run 1: rounds: Input should be greater", "docs/guides/studies.md"),
        (METHOD + "seeds = []", "run 1: seeds: Tuple should have", "docs/guides/studies.md"),
        (METHOD + "seeds = [-1]", "run 1: seeds: 0: Input should be greater", "docs/guides/studies.md"),
        (METHOD + 'label = ""', "run 1: label: String should have", "docs/guides/studies.md"),
        (f"[[run]]\n{OWN}", "run 1: give either methods, presets or baselines; found none", ""),
        (METHOD + 'baselines = ["ease"]', "run 1: give either .*; found methods and baselines", ""),
        ('[[run]]\nmethods = ["fedmf"]', "run 1: datasets are missing", ""),
        (
            f'[[run]]\n{OWN}baselines = ["ease"]\nrounds = 3',
            "run 1: baselines cannot be combined with rounds",
            "",
        ),
        (
            '[[run]]\npresets = ["paper:fedrap/ml-100k"]\ndatasets = ["ml-100k"]\nrounds = 3',
            "run 1: presets cannot be combined with datasets or rounds",
            "",
        ),
        (
            '[[run]]\npresets = ["paper:fedrap/ml-100k"]\noptions = { reg = 1 }',
            "run 1: presets cannot be combined with options",
            "",
        ),
        (METHOD + f'[[run]]\n{OWN}methods = ["fedfm"]', "run 2: unknown method 'fedfm'", "'fedmf'?"),
        (f'[[run]]\n{OWN}methods = ["fedmf+plg"]', "run 1: unknown plug-in 'plg'", "'plgc'?"),
        (f'[[run]]\n{OWN}methods = ["local+plgc"]', "run 1: .*plgc", "method"),
        (METHOD + "options = { rat = 1 }", "run 1: method 'fedmf' has no option 'rat'", "known: "),
        (METHOD + "options = { negatives = 0 }", "run 1: .*negatives: Input", "solera methods fedmf"),
        (METHOD + 'protocols = ["papers"]', "run 1: unknown protocol 'papers'", "'paper'?"),
        (
            '[[run]]\npresets = ["paper:fedrap/ml-100k"]\nprotocols = ["strcit"]',
            "run 1: unknown protocol 'strcit'",
            "'strict'?",
        ),
        (f'[[run]]\n{OWN}baselines = ["eas"]', "run 1: unknown baseline 'eas'", "'ease'?"),
        (f'[[run]]\n{OWN}baselines = ["ease"]\noptions = {{ rg = 1 }}', "rg: no such option", "reg=500.0"),
        ('[[run]]\npresets = ["paper:fedrp/ml-100k"]', "run 1: unknown preset", "'paper:fedrap/ml-100k'?"),
        ('[[run]]\ndatasets = ["ml-10k"]\nmethods = ["fedmf"]', "unknown data set 'ml-10k'", "'ml-100k'?"),
        ('[[run]]\ndatasets = ["no.csv"]\nmethods = ["fedmf"]', "file no.csv does not exist", "give a"),
        ('[[run]]\ndatasets = ["ratings.csv"]\nmethods = ["fedmf"]', "run 1: .*ratings.csv", "columns"),
        (f'[[run]]\n{OWN}methods = ["fedmf"]\nmin_interactions = 99', "run 1: .*99 or more", "lower"),
        (
            OWN.replace("ratings.csv", "ml-100k").join(("[[run]]\n", 'methods = ["fedmf"]')),
            "run 1: the columns of 'ml-100k' are already known",
            "remove `columns`",
        ),
        (
            METHOD + METHOD,
            "run 2: fedmf on ratings, strict, seed 0 would overwrite the record of run 1, fedmf on ratings",
            "label",
        ),
        (METHOD + "seeds = [1, 1]", "run 1: .*seed 1 would overwrite the record of run 1", "label"),
        (METHOD + 'label = "a b"\n' + METHOD + 'label = "A-b"', "run 2: A-b on .* run 1, a b on", "label"),
    ],
)
def test_everything_wrong_is_an_error_with_a_next_step(folder, text, message, hint):
    with pytest.raises(ConfigError) as caught:
        matrix(folder, text)
    assert re.search(message, caught.value.message), caught.value.message
    assert str(folder / "matrix.toml") in caught.value.message
    assert caught.value.hint
    assert hint in caught.value.hint


def test_a_data_set_that_is_fetched_by_hand_has_to_be_there(folder):
    name = next(name for name, entry in REGISTRY.items() if not entry.archive)
    with pytest.raises(ConfigError, match=r"run 1: .*downloaded by hand") as caught:
        matrix(folder, f'[[run]]\ndatasets = ["{name}"]\nmethods = ["fedmf"]')
    assert "--data-dir" in caught.value.hint


def test_a_matrix_that_is_not_there(folder):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_matrix(folder / "no.toml")


def test_the_matrix_in_the_documents(folder):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "studies.md").read_text(encoding="utf-8")
    text, blend, tune = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    made = entries(folder, text)
    runs = '[[run]]\ndatasets = ["ml-100k"]\nmethods = ["fedslist", "fedsasrec"]\n'
    assert [entry.label for entry in entries(folder, runs + blend)] == ["closed & trained"]
    (folder / "tune.toml").write_text(tune)
    assert len(read_tuning(folder / "tune.toml").entries) == 5
    assert len(made) == 2 * 2 * 3 + 3 + 2 * 2 + 2
    assert {entry.label for entry in made} >= {"fedmf, d=32", "popularity", "paper:pfedrec/ml-100k"}
    keys = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ", page.split("## Records")[0], re.MULTILINE)
    named = {key.strip("`") for line in keys for key in line.split(", ")}
    assert named == set(_RunTable.model_fields) - {"settings"} | _SETTINGS


def test_the_documents_name_every_field_of_a_record():
    page = (Path(__file__).parents[2] / "docs" / "guides" / "studies.md").read_text(encoding="utf-8")
    part = page.split("## Records")[1].split("## Tables")[0]
    named = {
        key.strip("`")
        for line in re.findall(r"^\| (`.*?`) \| ", part, re.MULTILINE)
        for key in line.split(", ")
    }
    assert named == {*Record.model_fields, "name", "error"} - {"format"}


def test_tuned_settings_are_those_of_the_strict_preset(folder, monkeypatch):
    own = (folder / "ratings.csv").read_text().replace("who,what,when", "user,item,time")
    (folder / "ratings.csv").write_text(own)
    found = {
        "strict:fedmf/ratings.csv": Preset(
            name="strict:fedmf/ratings.csv",
            method="fedmf",
            dataset="ratings.csv",
            settings={"protocol": "strict", "rounds": 7, "patience": 2},
            source="",
            options={"learning_rate": 0.3},
        )
    }
    monkeypatch.setattr("solera.runs.presets.presets", lambda: found)
    text = '[[run]]\ndatasets = ["ratings.csv"]\nmethods = ["fedmf"]\ntuned = true\n'
    (entry,) = entries(folder, text)
    assert (entry.label, entry.preset) == ("fedmf", "strict:fedmf/ratings.csv")
    assert (entry.config.rounds, entry.config.patience) == (7, 2)
    assert entry.config.options["learning_rate"] == 0.3
    with pytest.raises(ConfigError, match=r"unknown preset 'strict:fedncf/ratings\.csv'"):
        entries(folder, text.replace("fedmf", "fedncf"))
    with pytest.raises(ConfigError, match="tuned settings cannot be combined with rounds"):
        entries(folder, text + "rounds = 3\n")


def test_patience_is_a_runs_own(folder):
    (entry,) = entries(folder, f'[[run]]\n{OWN}methods = ["fedmf"]\npatience = 4\n')
    assert entry.config.patience == 4


def test_codings_of_a_matrix_are_those_of_the_command_line(folder):
    made = matrix(
        folder,
        """
        [[run]]
        datasets = ["ml-100k"]
        methods = ["fedmf"]
        upload = "int8"
        download = "int8"
        """,
    )
    (entry,) = made.entries
    assert isinstance(entry.config, RunConfig)
    assert (entry.config.upload, entry.config.download) == ("int8", "int8")
    assert entry.label == "fedmf, int8, int8"
    with pytest.raises(ConfigError, match="not a valid --upload"):
        matrix(folder, '[[run]]\ndatasets = ["ml-100k"]\nmethods = ["fedmf"]\nupload = "int4"\n')


# Methods side by side

WHERE: dict[str, Any] = {"rounds": 3, "dataset": "ml-100k", "protocol": "strict", "seed": 1}


def test_rounds_are_those_asked_for_or_a_methods_own(tmp_path):
    names = ["fedmf", "fedmf+plgc", "fedease", "strict:fedmf/ml-100k"]
    made = side_by_side(names, ["popularity"], tmp_path, **WHERE)
    labels = [entry.label for entry in made.entries]
    assert labels == [*names, "popularity"]
    rounds = [entry.config.rounds for entry in made.entries[:4]]
    assert rounds[:3] == [3, 3, 1]
    assert rounds[3] > 3, "a preset has its own"
    assert {entry.config.seed for entry in made.entries} == {1}


def test_what_cannot_be_compared(tmp_path):
    with pytest.raises(ConfigError, match="is listed twice"):
        side_by_side(["fedmf", "fedmf"], [], tmp_path, **WHERE)
    with pytest.raises(ConfigError, match="is for ml-1m, not for ml-100k"):
        side_by_side(["paper:pfedrec/ml-1m"], [], tmp_path, **WHERE)
