"""solera fit, recommend and serve: one table, a new model every night."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import httpx
import numpy as np
import polars as pl
import psutil
import pytest

from in_process import solera


def run(*args, fails=False):
    """What the command prints, on both streams if it fails."""
    done = solera(*args)
    assert bool(done.returncode) == fails, done
    return done.stdout + done.stderr if fails else done.stdout


@pytest.fixture
def nights(tmp_path):
    """A table, and the rows of the next day: a new user, a new item."""
    random = np.random.default_rng(1)
    rows = {(f"u{u}", f"i{(u % 4) * 5 + int(i)}") for u in range(30) for i in random.integers(0, 9, 8)}
    first = pl.DataFrame(sorted(rows), schema=["customer", "track"], orient="row")
    second = pl.DataFrame(
        [("new", "i1"), ("new", "fresh"), ("u1", "fresh")], schema=first.schema, orient="row"
    )
    first.write_csv(tmp_path / "first.csv")
    second.write_csv(tmp_path / "second.csv")
    return tmp_path


COLUMNS = ("--columns", "user=customer,item=track")


def test_every_night(nights):
    models = nights / "models"
    done = json.loads(run("fit", nights / "first.csv", "--out", models, *COLUMNS, "--json"))
    assert done["users"] == 30
    assert (models / "current").resolve() == models / "model-1"
    again = json.loads(run("fit", nights / "second.csv", "--update", "--out", models, *COLUMNS, "--json"))
    assert (again["users"], again["interactions"]) == (31, done["interactions"] + 3)
    assert (models / "current").resolve() == models / "model-2"
    run("recommend", models / "current", "--all", "-o", nights / "recs.parquet", "-k", 3)
    written = pl.read_parquet(nights / "recs.parquet")
    assert written["user"].n_unique() == 31
    for number in range(3):
        run("fit", nights / "first.csv", "--out", models, *COLUMNS, "--keep", 2, "-o", f"reg={number + 1}")
    assert sorted(path.name for path in models.iterdir()) == ["current", "model-4", "model-5"]


def test_a_night_that_fails_leaves_the_model_of_yesterday(nights):
    models = nights / "models"
    run("fit", nights / "first.csv", "--out", models, *COLUMNS)
    before = sorted(models.rglob("*"))
    (nights / "broken.csv").write_text("customer,track\nu1,\n")
    assert "is empty" in run("fit", nights / "broken.csv", "--out", models, *COLUMNS, fails=True)
    assert "next:" in run("fit", nights / "first.csv", "--out", models, *COLUMNS, "-o", "rge=1", fails=True)
    assert sorted(models.rglob("*")) == before


def test_users_without_a_model_get_what_is_popular(nights):
    table = pl.read_csv(nights / "first.csv")
    popular = table["track"].value_counts(sort=True)["track"][0]
    pl.concat([table, pl.DataFrame([("once", "i0")], schema=table.schema, orient="row")]).write_csv(
        nights / "more.csv"
    )
    done = json.loads(
        run(
            *("fit", nights / "more.csv", "--out", nights / "models", *COLUMNS, "--method", "fedmf"),
            *("-o", "rounds=2", "--json"),
        )
    )
    few = table.group_by("customer").len().filter(pl.col("len") < 5)
    assert done["fallback"] == 1 + len(few)
    counted = json.loads(run("data", "show", nights / "more.csv", *COLUMNS, "--json"))
    assert counted["users_left_out"] == 1 + len(few)
    assert counted["rows"] + counted["rows_left_out"] == len(table) + 1
    found = run("recommend", nights / "models" / "current", "--all", "-o", nights / "recs.csv", "-k", 1)
    assert f"{1 + len(few)} of them the most popular items" in " ".join(found.split())
    recs = pl.read_csv(nights / "recs.csv")
    assert recs.filter(pl.col("user") == "once")["item"].to_list() == [popular] or popular == "i0"


@pytest.fixture
def served(nights):
    models = nights / "models"
    run("fit", nights / "first.csv", "--out", models, *COLUMNS)
    with subprocess.Popen(
        [sys.executable, "-m", "solera", "serve", str(models / "current"), "--port", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        text=True,
    ) as process:
        address = process.stdout.readline().split()[-1].removesuffix("/docs")
        with httpx.Client(base_url=address, timeout=30) as client:
            yield client
        process.terminate()
        process.wait(20)


def test_several_processes_answer_and_end_together(nights):
    run("fit", nights / "first.csv", "--out", nights / "models", *COLUMNS)
    command = ("serve", nights / "models" / "current", "--port")
    with subprocess.Popen(
        [sys.executable, "-m", "solera", *map(str, command), "0", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        text=True,
    ) as process:
        address = process.stdout.readline().split()[-1].removesuffix("/docs")
        found = httpx.get(f"{address}/recommendations", params={"user": "u1"}, timeout=60)
        assert len(found.json()["items"]) == 10
        taken = run(*command, address.rpartition(":")[2], fails=True)
        assert "Address already in use" in taken and "next:" in taken
        workers = [
            each
            for each in psutil.Process(process.pid).children()
            if "spawn_main" in " ".join(each.cmdline())
        ]
        assert len(workers) == 2
        workers[0].kill()
        assert process.wait(30) == 2
        assert "has ended" in process.stderr.read()
    assert not [each for each in workers if each.is_running()]


def test_served_models_change_without_a_restart(nights, served):
    schema = served.get("/openapi.json").json()
    assert {"/recommendations", "/similar/{item}", "/model"} <= set(schema["paths"])
    first = served.get("/recommendations", params={"user": "u1", "k": 3}).json()
    assert [item["rank"] for item in first["items"]] == [1, 2, 3]
    assert not first["fallback"]
    asked = served.post("/recommendations", json={"history": ["i1", "nothing"], "k": 2}).json()
    assert len(asked["items"]) == 2
    assert served.post("/recommendations", json={"history": ["nothing"]}).json()["fallback"]
    assert len(served.get("/similar/i1").json()) == 10
    unknown = served.get("/recommendations", params={"user": "nobody"})
    assert unknown.status_code == 404
    assert "ids look like" in unknown.json()["next"]
    assert served.get("/recommendations", params={"user": "u1", "k": 0}).status_code == 422

    assert served.get("/recommendations", params={"user": "new"}).status_code == 404
    run("fit", nights / "second.csv", "--update", "--out", nights / "models", *COLUMNS)
    until = time.monotonic() + 30
    while served.get("/recommendations", params={"user": "new"}).status_code == 404:
        assert time.monotonic() < until
        time.sleep(0.2)
    assert served.get("/model").json()["users"] == 31
