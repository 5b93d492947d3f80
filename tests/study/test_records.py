"""A record holds what its run had, is written whole, and anything else is not taken for one."""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmark import made, ratings

from in_process import solera
from solera.core.errors import ConfigError, RunError
from solera.data.datasets import load
from solera.evaluate import split
from solera.runs import RunConfig, train
from solera.runs import environment as provenance
from solera.runs.environment import Code, peak_bytes
from solera.runs.result import TESTS
from solera.runs.settings import BaselineConfig
from solera.study.recording import record_of
from solera.study.records import Failure, Record, RunRequest, Store, asked, slug

COLUMNS = {"user": "who", "item": "what", "time": "when"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run's folder and its data: half of the clients in every round."""
    folder = tmp_path_factory.mktemp("run")
    path = ratings(folder)
    data = load(path, columns=COLUMNS)
    options = {"clients_per_round": 0.5, "local_epochs": 1}
    config = RunConfig(method="fedmf", dataset=str(path), options=options, rounds=4, seed=2, columns=COLUMNS)
    train(config, data, out=folder / "run", threads=1)
    return folder / "run", data


def ndcg(record, name) -> list[float]:
    values = record.ndcg(name)
    assert values is not None
    return values.tolist()


def test_a_record_has_what_the_run_had(run):
    folder, data = run
    record = record_of(folder, "mine", code=Code(commit="c0ffee", dirty=False), peak_bytes=7)
    result = json.loads((folder / "result.json").read_text())
    assert record.result.document() == result | {"peak_bytes": 7}
    assert (record.label, record.kind, record.dataset, record.seed) == ("mine", "method", "ratings", 2)
    assert record.code.commit == "c0ffee"
    assert record.ranks and record.ranks_train
    assert record.users == len(record.ranks) == len(record.ranks_train) == 30
    for name in TESTS:
        assert np.mean(ndcg(record, name)) == pytest.approx(result[name]["full"]["ndcg@10"])
    assert sum(rank <= 10 for rank in record.ranks) / 30 == result["test"]["full"]["hr@10"]
    sizes = split(data, "strict").train.lengths
    assert (record.by_activity[0].least, record.by_activity[-1].most) == (sizes.min(), sizes.max())
    for metric in ("hr@10", "ndcg@10"):
        whole = sum(group.users * group.full[metric] for group in record.by_activity) / 30
        assert whole == pytest.approx(result["test"]["full"][metric])


@pytest.mark.parametrize(("method", "name"), [("fedmf", "test_train"), ("fedease", "test")])
def test_a_run_that_was_tested_once_says_with_which_history(tmp_path, method, name):
    """As with more than 100,000 users."""
    path = ratings(tmp_path)
    config = RunConfig(method=method, dataset=str(path), rounds=1, columns=COLUMNS, both_tests=False)
    run = train(config, load(path, columns=COLUMNS), out=tmp_path / "run", threads=1)
    record = record_of(tmp_path / "run")
    assert list(record.result.tests) == [name]
    assert np.mean(ndcg(record, name)) == pytest.approx(run.result.main[1].full["ndcg@10"])
    assert [other for other in TESTS if record.ndcg(other) is not None] == [name]


def test_traffic_and_seconds_by_hand(run):
    folder, _ = run
    record = record_of(folder)
    rounds = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [entry["clients"] for entry in rounds] == [15] * 4
    until = rounds[: record.result.selected_round]
    # 15 of 30 clients send in every round, so an average one sends half of what one of them does.
    assert record.bytes_until_selected.up == pytest.approx(sum(e["bytes"]["up"] for e in until) / 2)
    assert record.bytes_until_selected.down == pytest.approx(40 * 16 * 4 * len(until) / 2)
    assert record.result.bytes.down == 40 * 16 * 4
    everything = sum(e["seconds"]["train"] + e["seconds"]["evaluate"] for e in rounds)
    assert record.seconds == pytest.approx(everything)
    assert 0 < record.result.seconds_per_round < record.seconds


def test_nothing_of_the_machine_is_in_a_record(run):
    record = record_of(run[0])
    text = record.model_dump_json()
    assert record.config["dataset"] == "ratings.csv"
    for secret in (str(run[0].parent), str(Path.home()), platform.release()):
        assert secret not in text
    told = {"system", "python", "machine", "cores", "threads", "device", "packages"}
    assert set(record.environment) == told
    assert record.environment["system"] == platform.system()
    assert record.environment["packages"]["torch"]


def test_a_run_that_is_not_its_preset(run):
    with pytest.raises(
        ConfigError, match=r"does not use preset 'paper:pfedrec/ml-100k': .*method 'fedmf' instead of"
    ):
        record_of(run[0], preset="paper:pfedrec/ml-100k")


def test_a_model_that_does_not_give_its_figures(run, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in run[0].iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    result = json.loads((copy / "result.json").read_text())
    result["test"]["full"]["mrr@20"] += 0.01
    (copy / "result.json").write_text(json.dumps(result))
    with pytest.raises(RunError, match=r"full mrr@20 .* has changed"):
        record_of(copy)


# Files


@pytest.fixture
def store(tmp_path) -> Store[Record]:
    return Store(tmp_path / "results", Record)


def failed(record: Record, error: str) -> Failure:
    return Failure(**{key: getattr(record, key) for key in RunRequest.model_fields}, error=error)


def test_what_is_written_is_read_before_it_is_collected_and_after(store):
    record = made("FedMF", [1.0, 2.5, 40.0])
    both = made("FedMF", [1.0, 2.5, 40.0], [3.0, 1.0, 1.5])
    store.put(record)
    store.put(other := made("a", [1.0], seed=3))
    for _ in range(2):
        assert store.all() == [other, record]
        assert store.find(record.name) == record
        assert store.find("nothing") is None
        asked = store.requests()[record.name]
        assert (asked.label, asked.config) == (record.label, record.config)
        store.collect()
    store.add(both)
    assert store.all() == [other, both]
    assert store.requests().keys() == {other.name, both.name}
    assert [path.name for path in store.path.parent.iterdir()] == ["results.parquet"]


def test_a_table_is_one_for_other_programs_too(store):
    record = made("FedMF", [1.0, 2.5, 40.0])
    store.add(record)
    (row,) = pl.read_parquet(store.path).to_dicts()
    assert (row["name"], row["label"], row["seed"]) == ("toy/fedmf--strict--s0", "FedMF", 0)
    assert (row["ranks_train"], row["ranks"], row["counts"]) == ([1.0, 2.5, 40.0], None, None)
    assert json.loads(row["result"])["test_train"]["full"] == record.result.test_train.full


def test_several_test_items_of_a_user():
    group = made("x", [1.0]).by_activity[1].model_dump()
    record = made("x", [1.0, 3.0], counts=[2], by_activity=[group])
    ideal = 1 + 0.6309297535714575  # 1/log2(2) + 1/log2(3)
    assert record.users == 1
    assert ndcg(record, "test_train") == pytest.approx([1.5 / ideal])


@pytest.mark.parametrize("calls", range(1, 8))
def test_an_interruption_at_any_moment_loses_nothing(store, monkeypatch, calls):
    """In the middle of a write, between the write of the table and the end of what was collected, …"""
    first, second = made("x", [1.0, 2.0]), made("y", [1.0, 2.0])
    store.add(first)
    store.put(second)
    with monkeypatch.context() as patch:
        counted = itertools.count(1)

        def cut(name):
            whole = getattr(os if name == "fsync" else Path, name)

            def sometimes(*given, **named):
                if next(counted) >= calls:
                    raise OSError("power cut")
                return whole(*given, **named)

            patch.setattr(os if name == "fsync" else Path, name, sometimes)

        for name in ("fsync", "replace", "unlink"):
            cut(name)
        with suppress(OSError):
            store.collect()
    again = Store(store.path, Record)
    assert again.all() == [first, second]
    again.collect()
    assert again.all() == [first, second]


def test_jobs_that_run_side_by_side_keep_their_records(store):
    """Two processes collect while four put."""
    records = [made("x", [1.0, 2.0], seed=seed) for seed in range(40)]

    def collect() -> None:
        while len(pl.read_parquet(store.path)) < len(records) + 1:
            Store(store.path, Record).collect()

    store.add(made("y", [1.0, 1.0]))
    with ThreadPoolExecutor(6) as pool:
        waited = [pool.submit(collect) for _ in range(2)]
        waited += [pool.submit(store.put, record) for record in records]
        for each in waited:
            each.result(timeout=60)
    assert len(store.all()) == 41


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("label", None, "label: Field required"),
        ("format", 5, "format: Input should be 4"),
        ("result", "{}", "method: Field required"),
        ("counts", [3], "2 ranks in test_train for 3 test items"),
        ("ranks_train", [1.0, None], "ranks_train: 1: Input should be"),
        ("by_activity", "[]", "by_activity do not cover all users"),
    ],
)
def test_what_is_not_a_record(store, column, value, message):
    store.add(made("x", [1.0, 2.0]))
    table = pl.read_parquet(store.path)
    changed = pl.Series(column, [value], dtype=table.schema[column])
    table.with_columns(changed).write_parquet(store.path)
    with pytest.raises(RunError) as caught:
        store.all()
    assert str(store.path) in caught.value.message
    assert message in caught.value.message


def test_what_is_not_a_table(store):
    store.path.write_text("{}")
    with pytest.raises(RunError, match="is not a table of records"):
        store.all()


def test_failures_are_no_records_and_end_with_success(store):
    record = made("x", [1.0, 2.0])
    for step in (store.collect, lambda: None):
        store.put(failed(record, "diverged"))
        step()
        assert store.all() == []
        assert store.find(record.name) is None
        assert [failure.error for failure in store.failures().values()] == ["diverged"]
    store.put(record)
    for _ in range(2):
        assert store.all() == [record]
        assert store.failures() == {}
        store.collect()
    store.add(failed(record, "later"))
    assert store.all() == [record], "the record of other settings is kept"
    assert [failure.error for failure in store.failures().values()] == ["later"]


def test_no_table_is_no_records(store):
    assert store.all() == []
    assert store.failures() == {}
    assert store.requests() == {}


# Records of version 0.2


AS_TRAINED = [1.0, 11.0, 2.0, 30.0]
OTHER = [1.0, 2.0, 3.0, 4.0]


def old(name: str, how: str | None = None, **tests: list[float]) -> dict:
    """A record of version 0.2: `ranks` are of the model as trained, which is its `test`."""
    record = made(name, AS_TRAINED)
    content = json.loads(record.model_dump_json())
    result, other = content["result"], made("fedmf", OTHER).result.test_train.model_dump()
    del content["ranks_train"], result["format"], result["refresh"]
    first = record.result.main[1].model_dump()
    result |= {"test": first, "test_train": None, "test_validation": None, "validation_item": how}
    result |= {each: first if ranks is AS_TRAINED else other for each, ranks in tests.items()}
    second = OTHER if len(tests) == 2 and OTHER in tests.values() else None
    return content | {"format": 2, "ranks": AS_TRAINED, "second_ranks": second, "label": name}


READ = "read with the history"


@pytest.mark.parametrize(
    ("content", "longer", "shorter"),
    [
        (old("fedmf", "user refreshed", test_train=AS_TRAINED, test_validation=OTHER), OTHER, AS_TRAINED),
        (old("fedease", READ, test_train=OTHER, test_validation=AS_TRAINED), AS_TRAINED, OTHER),
        (old("popularity", test_train=AS_TRAINED, test_validation=AS_TRAINED), AS_TRAINED, AS_TRAINED),
        (old("fedmf"), None, AS_TRAINED),
        (old("fedmf", test_train=AS_TRAINED), None, AS_TRAINED),
        (old("fedease"), AS_TRAINED, None),
        (old("fedease", READ, test_validation=AS_TRAINED), AS_TRAINED, None),
    ],
)
@pytest.mark.parametrize("how", ["json", "table"])
def test_a_record_of_0_2_says_which_test_it_is(tmp_path, how, content, longer, shorter):
    if how == "table":
        row = {key: json.dumps(value) if isinstance(value, dict) else value for key, value in content.items()}
        row |= {key: json.dumps(row[key]) for key in ("by_activity", "by_ratings")}
        row["name"] = "toy/one--strict--s0"
        pl.DataFrame([row], infer_schema_length=None).write_parquet(tmp_path / "old.parquet")
        record = Store(tmp_path / "old", Record).all()[0]
    else:
        record = Record.model_validate(content)
    assert [each and list(each) for each in (record.ranks, record.ranks_train)] == [longer, shorter]
    if how == "table":  # which is written anew with the first record that is added
        store = Store(tmp_path / "old", Record)
        store.add(made("new", [1.0]), failed(made("unlucky", [1.0]), "diverged"))
        assert "second_ranks" not in pl.read_parquet(tmp_path / "old.parquet").columns
        assert store.find(record.name) == record
        assert set(pl.read_parquet(tmp_path / "old.parquet")["format"]) == {4}
        assert len(store.failures()) == 1
    for name, ranks in zip(TESTS, (shorter, longer), strict=True):
        found = record.ndcg(name)
        tested = record.result.tests.get(name)
        assert (ranks is None) is (found is None) is (tested is None)
        assert found is None or found.mean() == pytest.approx(tested.full["ndcg@10"])


def test_a_folder_of_records_is_imported(tmp_path):
    records = [old(name) for name in ("fedease", "fedmf")]
    folder = tmp_path / "results" / "toy"
    folder.mkdir(parents=True)
    for record in records:
        (folder / f"{record['label']}--strict--s0.json").write_text(json.dumps(record))
    unlucky = failed(made("unlucky", [1.0]), "diverged")
    (folder / "unlucky--strict--s0.failed.json").write_text(unlucky.model_dump_json())
    store = Store(tmp_path / "results", Record)
    with pytest.raises(RunError, match="records of version") as caught:
        store.all()
    assert f"solera bench import {tmp_path / 'results'}" in caught.value.hint
    assert solera("bench", "import", tmp_path / "results").returncode == 0
    shutil.rmtree(tmp_path / "results")
    found = {record.label: record for record in store.all()}
    assert {label: list(record.result.tests) for label, record in found.items()} == {
        "fedease": ["test"],
        "fedmf": ["test_train"],
    }
    assert store.failures() == {unlucky.name: unlucky}


def test_a_folder_of_studies_is_imported(tmp_path):
    """Final runs of studies with a budget went on to the end."""
    trial = {"options": {"learning_rate": 0.5}, "end": "finished", "ndcg": 0.5, "seconds": 1.0}
    study = {"label": "fedmf", "kind": "method", "dataset": "toy", "protocol": "strict", "seed": 0}
    study |= {"space": {}, "environment": {}, "code": {}, "trials": [trial], "trials_of": None, "users": 9}
    effort = {"trials": 24, "passes": 40, "patience": 4}
    for name, more in (("a", {}), ("b", {"budget": 350, "rung": 5})):
        (tmp_path / name).mkdir()
        config = {"dataset": "toy", "method": "fedmf", "plugins": [], "effort": effort | more}
        (tmp_path / name / "fedmf.json").write_text(json.dumps(study | {"config": config}))
        assert solera("bench", "import", tmp_path / name).returncode == 0
        shutil.rmtree(tmp_path / name)
        assert (
            solera("bench", "tuned", "--tuning", tmp_path / name, "-o", tmp_path / f"{name}.toml").returncode
            == 0
        )
    presets = [tomllib.loads((tmp_path / f"{name}.toml").read_text())["strict:fedmf/toy"] for name in "ab"]
    assert [(each["rounds"], each.get("patience")) for each in presets] == [(40, 4), (40, None)]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("fedncf+elastic-merge", "fedncf+elastic-merge"),
        ("paper:fedrap/ml-100k", "paper-fedrap-ml-100k"),
        ("FedMF, d = 16", "fedmf-d-=-16"),
        ("../x--y", "x-y"),
        ("…", "-"),
    ],
)
def test_labels_as_file_names(label, name):
    assert slug(label) == name


# What two runs differ in


def test_differences_in_words():
    one = asked("x", RunConfig(method="fedmf", dataset="ml-100k", options={"reg": 0.1, "old": 1}))
    same = asked("x", RunConfig(method="fedmf", dataset="ml-100k", options={"reg": 0.1, "new": 2}))
    assert one.difference(same) == "", "options that came or went with the program are no difference"
    other = asked("x", RunConfig(method="fedmf", dataset="ml-100k", rounds=3, options={"reg": 0.2}))
    assert one.difference(other) == "reg 0.1 instead of 0.2, rounds 100 instead of 3"
    assert "kind 'method' instead of" in one.difference(
        asked("x", BaselineConfig(baseline="mf", dataset="ml-100k"))
    )
    assert "preset None instead of" in one.difference(one.model_copy(update={"preset": "p"}))


def test_a_budget_is_compared_setting_by_setting():
    plain = asked("x", RunConfig(method="fedmf", dataset="ml-100k"))

    def private(dp: dict[str, float | None] | None) -> RunRequest:
        return plain.model_copy(update={"config": plain.config | {"dp": dp}})

    before, after = private({"epsilon": 8.0}), private({"epsilon": 8.0, "threshold": None})
    assert before.difference(after) == ""
    assert after.difference(private({"epsilon": 1.0})) == "epsilon 8.0 instead of 1.0"
    assert "instead of None" in after.difference(private(None))


# The program


def test_commit_and_whether_the_source_differs(tmp_path, monkeypatch):
    package = tmp_path / "src"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr("solera.__file__", str(package / "__init__.py"))
    assert provenance.source() == Code()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    assert provenance.source() == Code(), "a repository that does not hold the source"
    git("add", ".")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "results.json").write_text("{}")
    assert provenance.source() == Code(commit=commit, dirty=False), "what is not source does not count"
    (package / "__init__.py").write_text("x = 1")
    assert provenance.source() == Code(commit=commit, dirty=True)


def test_every_record_of_the_repository_names_the_commit_that_made_it(pytestconfig):
    tables = sorted((pytestconfig.rootpath / "experiments" / "records").glob("*.parquet"))
    made_by = {
        f"{table.stem}/{row['name']}": json.loads(row["code"])
        for table in tables
        if "code" in (rows := pl.read_parquet(table)).columns
        for row in rows.select("name", "code").drop_nulls("code").iter_rows(named=True)
    }
    assert len(made_by) > 500
    assert [name for name, code in made_by.items() if not code["commit"] or code["dirty"] is not False] == []


def test_peak_memory_is_of_this_process():
    before = peak_bytes()
    assert before is not None
    assert 50e6 < before < 50e9
    held = bytearray(b"x") * int(before + 64e6)
    assert (peak_bytes() or 0) >= before + 60e6
    del held
