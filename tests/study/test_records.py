"""A record holds what its run had, is written whole, and anything else is not taken for one."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
from benchmark import made, ratings

from solera.core.errors import ConfigError, RunError
from solera.data.datasets import load
from solera.evaluate import split
from solera.runs import RunConfig, train
from solera.runs.environment import peak_bytes
from solera.runs.result import READ
from solera.runs.settings import BaselineConfig
from solera.study import provenance
from solera.study.provenance import Code
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


def ndcg(record, history) -> list[float]:
    values = record.ndcg(history)
    assert values is not None
    return values.tolist()


def test_a_record_has_what_the_run_had(run):
    folder, data = run
    record = record_of(folder, "mine", code=Code(commit="c0ffee", dirty=False), peak_bytes=7)
    result = json.loads((folder / "result.json").read_text())
    assert record.result.document() == result | {"peak_bytes": 7}
    assert (record.label, record.kind, record.dataset, record.seed) == ("mine", "method", "ratings", 2)
    assert record.code.commit == "c0ffee"
    assert record.users == len(record.ranks) == 30
    for history in ("train", "validation"):
        assert np.mean(ndcg(record, history)) == pytest.approx(result[f"test_{history}"]["full"]["ndcg@10"])
    assert record.second_ranks is not None
    assert len(record.second_ranks) == 30
    assert sum(rank <= 10 for rank in record.ranks) / 30 == result["test"]["full"]["hr@10"]
    sizes = split(data, "strict").train.lengths
    assert (record.by_activity[0].least, record.by_activity[-1].most) == (sizes.min(), sizes.max())
    for metric in ("hr@10", "ndcg@10"):
        whole = sum(group.users * group.full[metric] for group in record.by_activity) / 30
        assert whole == pytest.approx(result["test_validation"]["full"][metric])


def test_which_history_a_figure_is_of():
    """An old record has one test: of the longer history if its model reads histories."""
    reader, other, popular = (made(name, [1.0, 11.0]) for name in ("fedease", "fedmf", "popularity"))
    assert (reader.test("train"), reader.test("validation")) == (None, reader.result.test)
    assert (other.test("train"), other.test("validation")) == (other.result.test, None)
    assert popular.test("train") == popular.test("validation") == popular.result.test
    best = made("fedmf", [1.0, 1.0]).result.test
    fields = {"validation_item": "user refreshed", "test_train": other.result.test, "test_validation": best}
    both = other.model_copy(
        update={"result": other.result.model_copy(update=fields), "second_ranks": (1.0, 1.0)}
    )
    fields = {"validation_item": READ, "test_train": best, "test_validation": other.result.test}
    read_it = both.model_copy(update={"result": other.result.model_copy(update=fields)})
    assert (both.test("train"), both.test("validation")) == (other.result.test, best)
    assert (ndcg(both, "train"), ndcg(both, "validation")) == ([1, 0], [1, 1])
    assert (ndcg(other, "train"), other.ndcg("validation")) == ([1, 0], None)
    assert (reader.ndcg("train"), ndcg(reader, "validation")) == (None, [1, 0])
    assert ndcg(popular, "train") == ndcg(popular, "validation") == [1, 0]
    assert read_it.test("train") == best
    assert ndcg(read_it, "validation") == [1, 0], "the first test has the longer history"
    assert ndcg(read_it, "train") == [1, 1]


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


def test_nothing_of_the_machine_is_in_the_file(run, tmp_path):
    record = record_of(run[0])
    store = Store(tmp_path, Record)
    store.put(record)
    text = store.file(record.name).read_text(encoding="utf-8")
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
    return Store(tmp_path, Record)


def test_what_is_written_is_read(store):
    record = made("FedMF", [1.0, 2.5, 40.0])
    store.put(record)
    assert store.find(record.name) == record
    assert store.all() == [record]
    assert [path.name for path in store.file(record.name).parent.iterdir()] == ["fedmf--strict--s0.json"]


def test_several_test_items_of_a_user():
    group = made("x", [1.0]).by_activity[1].model_dump()
    record = made("x", [1.0, 3.0], counts=[2], by_activity=[group])
    ideal = 1 + 0.6309297535714575  # 1/log2(2) + 1/log2(3)
    assert record.users == 1
    assert ndcg(record, "train") == pytest.approx([1.5 / ideal])


def test_a_write_that_is_cut_short_leaves_the_former_record(store, monkeypatch):
    record = made("x", [1.0, 2.0])
    store.put(record)
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("power cut")))
    with pytest.raises(OSError, match="power cut"):
        store.put(made("x", [9.0, 9.0]))
    assert store.all() == [record]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: "{", "Invalid JSON"),
        (lambda _: '{"test": {"full": {}}}', "label: Field required"),
        (lambda text: text.replace('"format":2', '"format":1'), "format: Input should be 2"),
        (lambda text: text.replace('"leaky"', '"leeky"'), "leaky: Field required"),
        (lambda text: text.replace('"users":1', '"users":2', 1), "by_activity do not cover all users"),
        (lambda text: text.replace('"counts":null', '"counts":[3]'), "2 ranks for 3 test items"),
        (lambda text: text.replace('"ranks":[1.0', '"ranks":[NaN'), "ranks: 0: Input should be"),
    ],
)
def test_what_is_not_a_record(store, change, message):
    record = made("x", [1.0, 2.0])
    store.put(record)
    path = store.file(record.name)
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))
    with pytest.raises(RunError) as caught:
        store.all()
    assert str(path) in caught.value.message
    assert "is not a record" in caught.value.message
    assert message in caught.value.message
    assert "--replace" in caught.value.hint


def test_failures_are_no_records_and_end_with_success(store):
    record = made("x", [1.0, 2.0])
    fields = {key: getattr(record, key) for key in RunRequest.model_fields}
    store.put(Failure(**fields, error="diverged"))
    assert store.all() == []
    assert [failure.error for failure in store.failures().values()] == ["diverged"]
    store.put(record)
    assert store.all() == [record]
    assert store.failures() == {}


def test_no_folder_is_no_records(tmp_path):
    assert Store(tmp_path / "results", Record).all() == []


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


def test_peak_memory_is_of_this_process():
    before = peak_bytes()
    assert before is not None
    assert 50e6 < before < 50e9
    held = bytearray(b"x") * int(before + 64e6)
    assert (peak_bytes() or 0) >= before + 60e6
    del held
