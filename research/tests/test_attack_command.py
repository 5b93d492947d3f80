"""solera attack as a user meets it."""

from __future__ import annotations

import json
import re

import pytest

from in_process import solera
from made_ratings import write_ratings
from solera.study.records import Store
from solera_research.inference.records import AttackRecord

SMALL = ("--rounds", "2", "--sums", "1,2", "--clients", "5", "--threads", "1")


@pytest.fixture
def ratings(tmp_path):
    return write_ratings(tmp_path / "ratings.csv", users=30, items=60, each=8, seed=0)


@pytest.mark.slow
def test_tables_json_and_record_say_the_same(ratings, tmp_path):
    common = ("attack", "fedmf", "--data", ratings, "-o", "embedding_size=4", *SMALL)
    shown = solera(*common, "--record", "kept", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "round 2/2" in shown.stderr
    printed = json.loads(solera(*common, "--json", cwd=tmp_path).stdout)
    (record,) = Store(tmp_path / "kept", AttackRecord).all()
    kept = json.loads(record.model_dump_json())
    assert kept["findings"] == printed["findings"]
    assert str(tmp_path) not in json.dumps(kept)
    (norm,) = (
        each
        for each in kept["findings"]
        if (each["attack"], each["first_round"], each["last_round"], each["summed"]) == ("norm", 1, 2, 1)
    )
    assert re.search(rf"rounds 1 to 2 +5 +{norm['target']['auc']:.4f} ", shown.stdout)


@pytest.mark.slow
def test_a_runs_folder_is_attacked_in_the_rounds_it_had(ratings, tmp_path):
    options = ("-o", "embedding_size=4", "-o", "local_epochs=2")
    settings = ("fedmf", "--data", ratings, *options, "--seed", "3", "--threads", "1")
    trained = solera("train", *settings, "--rounds", "4", "--out", "run", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    of_run = json.loads(solera("attack", "run", *SMALL, "--json", cwd=tmp_path).stdout)
    of_method = json.loads(solera("attack", *settings, *SMALL, "--json", cwd=tmp_path).stdout)
    assert of_run["findings"] == of_method["findings"]
    assert of_run["config"] == of_method["config"]


@pytest.mark.parametrize(
    ("args", "message", "next_step"),
    [
        (("fedmff", "--data", "ml-100k"), "unknown method 'fedmff'", "'fedmf'?"),
        (("fedmf",), "the data set is missing", "--data ml-100k"),
        (("fedmf", "--data", "{ratings}", "--sums", "1,x"), "--sums '1,x' is not a list", "--sums 1,5"),
        (("fedmf", "--data", "{ratings}", "--attacked", "9"), "round 9 is not between 1 and 5", "--rounds"),
        (("fedmf", "--data", "{ratings}"), "cannot attack 100 of 30 clients", "--clients from 1 to 15"),
        (("local", "--data", "{ratings}"), "'local' sends no changes", "e.g. fedmf"),
        ((".", "--seed", "1"), "--seed cannot be given for the folder of a run", "omit them"),
        ((".",), "contains no run", "solera train"),
    ],
)
def test_wrong_input_is_one_line_and_a_next_step(args, message, next_step, ratings, tmp_path):
    done = solera("attack", *(arg.format(ratings=ratings) for arg in args), cwd=tmp_path)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert message in error
    assert next_step in hint
