"""Tables and pictures are made of records alone, with numbers derived by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from benchmark import made

from solera.cli import bench as commands
from solera.core.errors import RunError
from solera.evaluate.beyond import NAMES
from solera.study.compare import boards
from solera.study.records import Failure, Record, RunRequest, Store
from solera.study.tables import Table, client_memory, make_tables

# NDCG@10 of ranks 1, 3 and 11: 1, ½ and 0.
RECORDS = [
    made("a", [1.0, 11.0], seed=0),
    made("a", [1.0, 3.0], seed=1),
    made("b_1", [11.0, 11.0]),
    made("ease", [3.0, 11.0], kind="baseline", bytes_until_selected=None, seconds=3.0),
    made("mf", [11.0, 11.0], kind="baseline", bytes_until_selected=None, seconds=3.0),
    made("a", [1.0, 1.0], protocol="paper"),
    made("a", [3.0, 3.0], dataset="other"),
    made("paper:a/toy", [1.0, 1.0], preset="paper:a/toy"),
]


def failure(**changes) -> Failure:
    fields = {key: getattr(made("unlucky", [1.0]), key) for key in RunRequest.model_fields}
    return Failure(**(fields | changes), error="diverged")


def tables(records=RECORDS, failures=()) -> dict[str, Table]:
    return {table.name: table for table in make_tables(boards(records, failures))}


def rows(table: Table) -> dict[str, list[str]]:
    lines = [line.strip("| ").split(" | ") for line in table.markdown().splitlines() if line[:1] == "|"]
    return {label: cells for label, *cells in lines}


def test_what_there_is():
    names = ["other--strict", "toy--strict", "toy--paper--leaky"]
    parts = ["", "--costs", "--activity-full", "--activity-sampled", "--warm", "--beyond"]
    overviews = ["overview--strict--test_train", "overview--strict--test"]
    expected = [name + part for name in names for part in parts] + overviews
    expected.insert(expected.index("toy--strict--costs"), "toy--strict--against-test_train")
    assert list(tables()) == expected


def test_main_table_by_hand():
    """Of `a`, NDCG@10 is ½ and ¾: 0.625 ± 0.25/√2.

    They were tested once: EASE with the validation item, others without.
    """
    found = rows(tables()["toy--strict"])
    assert [label for label in found if label != "method"] == [
        "---|---|---|---|---|---|---|---",
        "paper:a/toy",
        "a",
        "ease (centralized)",
        "b_1",
        "mf (centralized)",
    ]
    assert found["a"] == [
        "0.7500 ± 0.3536",
        "0.6250 ± 0.1768",
        "not run",
        "not run",
        "not run",
        "not run",
        "2",
    ]
    assert found["ease (centralized)"][1:4] == ["not run", "0.5000", "0.2500"]


def test_costs_by_hand():
    costs = tables()["toy--strict--costs"]
    assert costs.head[2:6] == ("kB up a round", "kB down a round", "MB up", "MB down")
    found = rows(costs)
    assert {"ease", "mf"}.isdisjoint(found), "a centralized model has no clients"
    round_, *moved, client, seconds, memory = found["a"]
    assert moved == ["100", "200", "3", "6"]
    assert seconds == "0.5"
    assert {round_, client, memory} == {"not recorded"}, "and no method is called a"


def test_memory_of_a_client_from_its_record():
    """60 items and a user, 8 dimensions; 100,000 bytes are rows of 4 + 8 · 4; Adam keeps 4 of each number."""
    fedmf = made("fedmf", [1.0, 1.0])
    assert client_memory(fedmf) == pytest.approx(4 * (61 * 8 + 4 * 8 * (1 + 1e5 / 36)) / 1e6, abs=1e-6)
    solved = made("fedease", [1.0, 1.0], config={"method": "fedease", "options": {}})
    assert client_memory(solved) == pytest.approx(0.1 + 0.2), "what it sends and what it receives"
    coded = fedmf.result.model_copy(update={"upload": "bits=8"})
    assert client_memory(fedmf.model_copy(update={"result": coded})) is None
    assert client_memory(made("local", [1.0, 1.0])) is None, "it sends no rows to tell how many it touches"
    assert client_memory(made("mf", [1.0, 1.0], kind="baseline")) is None


def test_numbers_in_csv():
    lines = tables()["toy--strict"].csv().splitlines()
    found = {line["method"]: line for line in csv.DictReader(lines)}
    a = found["a"]
    assert float(a["NDCG@10, full ranking, test_train mean"]) == 0.625
    assert float(a["NDCG@10, full ranking, test_train sd"]) == pytest.approx(0.25 / 2**0.5)
    assert found["b_1"]["NDCG@10, full ranking, test_train sd"] == ""


def test_latex_is_escaped():
    text = tables()["toy--strict"].latex()
    assert r"b\_1 & 0.0000 & 0.0000" in text
    assert r"a & 0.7500 $\pm$ 0.3536 & 0.6250 $\pm$ 0.1768" in text
    assert text.count(r"\\") == 6
    assert not set("±–−·_`") & set(text.replace(r"\_", ""))


def test_leaky_tables_say_so():
    for name, table in tables().items():
        assert ("leaky" in name) == ("LEAKY" in table.title) == ("toy--paper" in name)
        for text in (table.markdown().splitlines()[0], table.latex()):
            assert ("LEAKY" in text) == ("leaky" in name)


def test_what_was_not_run_and_what_failed():
    found = tables(failures=[failure(), failure(dataset="other", label="b_1")])
    other = rows(found["other--strict"])
    assert other["ease"] == ["not run"] * 6 + ["0"]
    assert other["b_1"][0] == "failed"
    assert "unlucky" not in other
    assert "paper:a/toy" not in other, "a preset is at home on its own data set"
    assert rows(found["toy--strict"])["unlucky"][1] == "failed"
    assert rows(found["other--strict--activity-full"])["mf"] == ["not run"] * 4
    assert rows(found["overview--strict--test"])["ease (centralized)"] == ["not run", "0.2500"]
    overview = rows(found["overview--strict--test_train"])
    assert overview["method"] == ["other", "toy"]
    assert "paper:a/toy" not in overview
    assert overview["a"] == ["0.5000", "0.6250 ± 0.1768"]
    assert overview["b_1"] == ["failed", "0.0000"]
    assert overview["ease (centralized)"] == ["not run", "not run"]


def test_both_tests_by_hand():
    """Of `a`, NDCG@10 is ½ without the validation item and 1 with it: it is then before EASE with ¾."""
    a, ease = made("a", [1.0, 11.0], [1.0, 1.0]), made("ease", [1.0, 3.0], kind="baseline")
    better = a.result.test.model_copy(
        update={
            "cold": 0.25,
            "warm": {"hr@10": 1.0, "ndcg@10": 0.5},
            "beyond": {f"{name}@10": 0.125 for name in NAMES},
        }
    )
    both = a.model_copy(update={"result": a.result.model_copy(update={"test": better})})
    made_of = tables([both, ease])
    found = rows(made_of["toy--strict"])
    assert list(found)[2:] == ["a", "ease (centralized)"]
    assert found["a"][:4] == ["0.5000", "0.5000", "1.0000", "1.0000"]
    warm = rows(made_of["toy--strict--warm"])
    assert warm["a"] == ["1.0000", "1.0000", "1.0000", "0.5000", "25.0%"]
    assert warm["ease (centralized)"] == ["1.0000", "0.7500", "not run", "not run", "not run"]
    beyond = rows(made_of["toy--strict--beyond"])
    assert beyond["method"] == [f"{name}@10" for name in NAMES]
    assert (beyond["a"], beyond["ease (centralized)"]) == (["0.1250"] * 5, ["not run"] * 5)


def test_activity_by_hand():
    table = tables()["toy--strict--activity-sampled"]
    assert table.head[1:3] == ("HR@10, 3–9 items, 1 users", "NDCG@10, 3–9 items, 1 users")
    assert rows(table)["a"] == ["0.2500 ± 0.0000", "0.1250 ± 0.0000"] * 2
    assert rows(table)["ease (centralized)"] == ["0.2500", "0.1250"] * 2


def test_seeds_of_other_settings_are_not_averaged():
    changed = made("a", [1.0, 1.0], seed=2)
    changed = changed.model_copy(update={"config": changed.config | {"options": {"embedding_size": 9}}})
    with pytest.raises(RunError, match=r"a--strict--s2 and .* have different settings: embedding_size 9"):
        boards([*RECORDS, changed])


def test_other_users_cannot_be_compared():
    with pytest.raises(RunError, match=r"c--strict--s0 and .* cover different users"):
        boards([*RECORDS, made("c", [1.0, 1.0, 1.0])])


# Files


def write_all(folder: Path) -> Path:
    store = Store(folder, Record)
    for record in RECORDS:
        store.put(record)
    store.put(failure())
    return folder


def test_made_again_they_are_the_same(tmp_path, capsys):
    results = write_all(tmp_path / "results")
    for out in ("one", "two"):
        commands.tables(results=results, output=tmp_path / out, json=True)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / out).iterdir()} for out in ("one", "two")
    )
    assert first == second
    assert {Path(name).suffix for name in first} == {".md", ".csv", ".tex"}
    (document, end) = json.JSONDecoder().raw_decode(capsys.readouterr().out)
    assert end
    assert len(document["written"]) == len(first)
    assert "failed" in (tmp_path / "one" / "toy--strict.md").read_text()


def test_no_records(tmp_path):
    with pytest.raises(RunError, match="no records") as caught:
        commands.tables(results=tmp_path, output=tmp_path / "out", json=False)
    assert "solera bench run" in caught.value.hint
