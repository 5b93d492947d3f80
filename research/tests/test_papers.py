"""Tables of papers: run on a small data set, interrupted, shown; and records that hold several cells."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest
from benchmark import made

import solera_research.papers as module
from in_process import solera
from solera.core.errors import ConfigError
from solera.study.records import Record, Store
from solera.study.worker import Job, perform
from solera_research.papers import Paper, PaperTable
from solera_research.papers.cells import Cell, Stored, cells, figure, missing_runs, select
from solera_research.papers.tables import count, results, run_grids

TOY = """
name = "Toy"
title = "Toy"
about = "Small."
no_data = { "Nowhere" = "nobody has it" }
no_run = { "Never" = "it has no meaning" }

[rows]
key = "toy"
citation = "Nobody 2020"

[rows.datasets]
"Films" = { name = "filmtrust" }
"Other films" = { name = "hetrec2011-movielens" }

[rows.runs."FedMF"]
method = "fedmf"
rounds = 3
options = { embedding_size = 4, local_epochs = 1 }

[rows.runs."Popular"]
baseline = "popularity"

[rows.runs."Later"]
method = "not-yet"

[[table]]
id = "table-1"
title = "All"
columns = ["Films", "Other films", "Nowhere"]
percent = true
about = "Everything differs."
[table.rows]
"FedMF" = "50.00 ± 1.00 | 25.00 | 1 | 1 | 1 | 1"
"Popular" = "40.00 | 20.00 | 1 | 1 | 1 | 1"
"Later" = "1 | 1 | 1 | 1 | 1 | 1"
"Never" = "1 | 1 | 1 | 1 | 1 | 1"

[[table]]
id = "table-2"
title = "Full ranking, and noise"
columns = ["Films"]
of = "FedMF"
vary = "noise"
ranking = "full"
rows = ["0", "0.5"]

[[table]]
id = "table-3"
title = "A picture"
kind = "pictures"
commands = ["solera report runs/x"]
"""


@pytest.fixture
def toy(monkeypatch) -> Paper:
    paper = Paper(key="toy", **tomllib.loads(TOY))
    monkeypatch.setattr(module, "papers", lambda: {"toy": paper})
    return paper


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch) -> Path:
    """30 users, 40 items, under the name of a data set."""
    monkeypatch.delenv("SOLERA_DATA", raising=False)
    draw, folder = random.Random(0), tmp_path / "data" / "filmtrust"
    folder.mkdir(parents=True)
    rows = [f"{user} {item} 1" for user in range(30) for item in draw.sample(range(40), 10 + user % 5)]
    (folder / "ratings.txt").write_text("\n".join(rows) + "\n")
    return tmp_path / "data"


def run_all(asked: list[Cell], records: Path, data_dir: Path, seeds: int = 1) -> list[str]:
    """As `run_matrix` does, without processes. Returns the names of the records that were made."""
    matrix = missing_runs(asked, Stored(records), seeds, records)
    for entry in matrix.entries:
        job = Job.of(matrix, entry, records.parent / "work", data_dir)
        assert perform(job, threading.Event(), lambda _: None).end == "done"
    return [entry.asked.name for entry in matrix.entries]


def test_cells_that_cannot_be_run_say_why(toy, data_dir):
    found = {(cell.row, cell.column): cell.problem for cell in cells(toy, toy.tables["table-1"], data_dir)}
    assert found["FedMF", "Films"] is None
    assert found["FedMF", "Other films"] == ("no data", "needs the data set hetrec2011-movielens")
    assert found["FedMF", "Nowhere"] == ("no data", "no data: nobody has it")
    assert found["Later", "Films"][0] == "not implemented"
    assert "not-yet" in found["Later", "Films"][1]
    assert found["Never", "Films"] == ("no such run", "cannot be run: it has no meaning")


@pytest.mark.slow
def test_a_table_is_run_once_and_shown(toy, data_dir, tmp_path):
    table, records = toy.tables["table-1"], tmp_path / "records" / "papers"
    asked = select(toy, table, "filmtrust", None, data_dir)
    made_now = run_all(asked, records, data_dir, seeds=2)
    assert made_now == [
        f"filmtrust/toy-{row}--paper--s{seed}" for seed in (0, 1) for row in ("fedmf", "popular")
    ]
    assert run_all(asked, records, data_dir, seeds=2) == []
    compared = results(asked, Stored(records))
    assert count(compared) == (4, 4, 2, 2)
    [grid] = run_grids(compared)
    store = Store(records, Record)
    first = [store.find(made_now[seed * 2]).result.test_train.sampled99["hr@10"] for seed in (0, 1)]
    mean = sum(first) / 2
    rows = {row[0]: row[1:] for row in grid.rows}
    assert rows["FedMF"][0] == "0.5000 ± 0.0100 / 0.2500"
    assert rows["FedMF"][1].startswith(f"{mean:.4f} ± ")
    assert rows["FedMF"][2].startswith(f"{mean - 0.5:+.4f} / ")
    assert rows["FedMF"][3] == "2"
    assert rows["Later"][1].startswith("not implemented")

    # The full ranking is in the same record; with noise it is another run, whose label says what it is worth.
    full, noisy = cells(toy, toy.tables["table-2"], data_dir)
    stored = Stored(records)
    assert len(stored.of(full)) == 2
    assert stored.of(noisy) == []
    assert noisy.label == "toy: FedMF, Laplace noise 0.5, no clip: no guarantee"

    # A record of equal settings counts, whatever it is called; one of others does not.
    other = tmp_path / "other" / "results"
    one = stored.of(full)[0].model_copy(update={"label": "something else", "preset": "paper:x"})
    Store(other, Record).put(one)
    Store(other, Record).put(made("fedmf", [1.0, 2.0], dataset="filmtrust", protocol="paper"))
    beside = Stored(other.parent / "papers")
    assert [record.label for record in beside.of(full)] == ["something else"]
    assert beside.of(noisy) == []


def test_an_interrupted_cell_goes_on(toy, data_dir, tmp_path):
    records = tmp_path / "records" / "papers"
    asked = select(toy, toy.tables["table-1"], "Films", "fedmf", data_dir)
    matrix = missing_runs(asked, Stored(records), 1, records)
    [entry] = matrix.entries
    job, stop = Job.of(matrix, entry, tmp_path / "work", data_dir), threading.Event()
    assert perform(job, stop, lambda _: stop.set()).end == "stopped"
    assert list((tmp_path / "work").glob("checkpoint-*")), "what is done so far"
    assert missing_runs(asked, Stored(records), 1, records).entries == (entry,)
    assert perform(job, threading.Event(), lambda _: None).end == "done"
    assert missing_runs(asked, Stored(records), 1, records).entries == ()


def test_records_have_costs_and_groups(toy, data_dir, tmp_path):
    records = tmp_path / "papers"
    asked = select(toy, toy.tables["table-1"], "filmtrust", "FedMF", data_dir)
    [name] = run_all(asked, records, data_dir)
    (record,) = Store(records, Record).all()
    assert record.name == name
    assert record.costs.client_parameters == 40 * 4 + 4, "items and a user vector"
    assert record.costs.server_parameters == 40 * 4
    assert record.costs.seconds_per_client > 0
    assert [(group.least, group.most, group.users) for group in record.by_ratings] == [(5, 19, 30)]
    found = record.result.test_train.sampled99["hr@10"]
    assert record.by_ratings[0].sampled99["hr@10"] == pytest.approx(found)
    inactive = PaperTable(id="t", title="", ratings={"FedMF": {"filmtrust": (5, 19)}}, columns=("Films",))
    cell = Cell(toy, inactive, "FedMF", "Films", ())
    assert figure(record, "hr@10", cell) == pytest.approx(found)
    assert figure(record.model_copy(update={"by_ratings": ()}), "hr@10", cell) is None, "an older record"


def test_wrong_data_sets_and_rows_suggest_the_nearest(toy):
    table = toy.tables["table-1"]
    with pytest.raises(ConfigError) as error:
        select(toy, table, "filmtrusd", None, None)
    assert "filmtrust" in error.value.hint
    with pytest.raises(ConfigError) as error:
        select(toy, table, None, "FedFM", None)
    assert "fedmf" in error.value.hint


@pytest.mark.slow
def test_commands(toy, data_dir, tmp_path):
    there = ("--data-dir", data_dir, "--records", tmp_path / "papers")
    listed = json.loads(solera("paper", "show", *there, "--json").stdout)
    assert [(each["table"], each["cells"], each["runnable"], each["recorded"]) for each in listed] == [
        ("toy/table-1", 12, 2, 0),
        ("toy/table-2", 2, 2, 0),
        ("toy/table-3", 0, 0, 0),
    ]
    planned = json.loads(
        solera("paper", "run", "toy/table-1", "--seeds", 2, "--plan", *there, "--json").stdout
    )
    assert [(run["run"], run["seed"]) for run in planned["runs"]] == [
        ("toy: FedMF", 0),
        ("toy: Popular", 0),
        ("toy: FedMF", 1),
        ("toy: Popular", 1),
    ]
    assert len(planned["left_out"]) == 10
    shown = solera("paper", "show", "toy/table-1", *there)
    assert "not run" in shown.stdout and "LEAKY" in shown.stdout and "Everything differs." in shown.stdout
    document = json.loads(solera("paper", "show", "toy/table-1", "--only", "FedMF", *there, "--json").stdout)
    assert [cell["state"] for cell in document["cells"]] == ["not run", "no data", "no data"]
    assert document["cells"][0]["published"]["hr@10"] == {"mean": 0.5, "sd": 0.01}
    refused = solera("paper", "run", "toy/table-3", *there)
    assert refused.returncode == 2
    assert "solera paper show toy/table-3" in refused.stderr
    assert "solera report runs/x" in solera("paper", "show", "toy/table-3", *there).stdout


@pytest.mark.slow
def test_ctrl_c_and_the_same_command_again(data_dir, tmp_path):
    """A cell of a real table, in real processes."""
    command = [sys.executable, "-m", "solera", "paper", "run", "pfedclr/table-1", "--data", "filmtrust"]
    command += ["--only", "FedMF", "--data-dir", str(data_dir), "--records", str(tmp_path / "papers")]

    def begin() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    process = begin()
    while not list(tmp_path.glob(".bench-work/*/history.jsonl")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130, said
    assert "run the same command again" in said
    printed, said = begin().communicate(timeout=180)
    assert "1 of 1 records" in printed, said
    record = Store(tmp_path / "papers", Record).find("filmtrust/pfedclr-fedmf--paper--s0")
    assert record.result.rounds == 100
