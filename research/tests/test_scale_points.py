"""`solera bench scale`: what is measured, and that finished points are kept."""

from __future__ import annotations

import json
import os
import signal
import threading

import psutil
import pytest
import typer

import scale_records as made
from commands import solera
from solera.core.errors import ConfigError, RunError
from solera.data.datasets import load
from solera.evaluate.audit import audit
from solera.runs import StoppedError
from solera.study.records import Store
from solera_research.cli import scale as bench_scale
from solera_research.scale import measure
from solera_research.scale.points import FULL, QUICK, chosen, points, short
from solera_research.scale.records import ScaleRecord, read_all
from solera_research.scale.worlds import prepare


def test_every_axis_has_its_points():
    found = [point for point in points(FULL) if point.method == "pfedrec"]
    assert {point.users for point in found if point.items == 10**5} == {10**4, 10**5, 10**6}
    assert {point.items for point in found if point.users == 10**5} == {10**4, 10**5}
    one_thread = [point for point in found if point.threads == 1]
    assert {point.ranks for point in one_thread} == {1, 2}
    assert len({(point.users, point.items) for point in one_thread}) == 1
    largest = max(found, key=lambda point: point.users)
    assert (largest.rounds, largest.clients) == (10, 10_000)
    assert len({point.name for point in points(FULL)}) == len(points(FULL))


def test_a_point_is_a_command():
    point = next(point for point in points(FULL) if point.name == "fedmf-u1e5-i1e5-r2x1")
    assert " ".join(point.arguments("w.parquet", "run")) == (
        "train fedmf --data w.parquet --out run --json --rounds 10 -o clients_per_round=10000 "
        "--evaluate-users 2000 --evaluate-every 5 --no-both-tests --threads 1 --workers 2"
    )
    solved = next(point for point in points(FULL) if point.solved)
    assert solved.clients == solved.users
    assert "--rounds" not in solved.arguments("w.parquet", "run")
    assert "neighbours=100" in solved.arguments("w.parquet", "run")


def test_points_without_their_option_are_skipped_with_a_sentence():
    point = points(FULL)[0].model_copy(update={"options": {"colour": 1}})
    assert point.missing_option() == "fedmf colour=1".replace(" ", "-") + (
        "-u1e4-i1e5-r1x2 is skipped: fedmf has no option colour"
    )
    assert points(FULL)[0].missing_option() is None


def test_words_choose_points():
    assert {point.users for point in chosen(points(FULL), ["u1e6"])} == {10**6}
    with pytest.raises(ConfigError, match="no point is called nobody"):
        chosen(points(FULL), ["nobody"])


def test_numbers_in_names():
    assert [short(number) for number in (100_000, 250_000, 1_500, 1_234)] == ["1e5", "25e4", "1500", "1234"]


@pytest.mark.slow
def test_popularity_is_that_of_the_audit(tmp_path):
    """Which scores every item for every user."""
    file, world = prepare(60, 400, tmp_path)
    data = load(str(file))
    assert world.popularity == pytest.approx(audit(data, "strict")["popularity"]["full"]["ndcg@10"])
    assert (world.users, world.items, world.interactions) == (data.n_users, data.n_items, len(data))
    assert world.training_items == pytest.approx(len(data) / 60 - 2)


def test_a_record_is_read_as_it_was_written(tmp_path):
    records = made.some()
    Store(tmp_path / "scale", ScaleRecord).add(*records)
    assert sorted(read_all(tmp_path / "scale"), key=str) == sorted(records, key=str)
    assert read_all(tmp_path / "nowhere") == []
    (tmp_path / "x.parquet").write_text("{}")
    with pytest.raises(RunError, match="is not a table of records"):
        read_all(tmp_path / "x.parquet")


def test_interrupted_measurements_keep_what_is_done(tmp_path, monkeypatch):
    """And the same command then measures what is left, and nothing twice."""
    wanted = chosen(points(QUICK), ["fedmf"])
    called: list[str] = []

    def measured(point, table, worlds, say):
        if called.count(point.name) == 0 and len(called) == 2:
            called.append(point.name)
            raise KeyboardInterrupt
        called.append(point.name)
        Store(table, ScaleRecord).add(made.record(1000, 500).model_copy(update={"point": point}))

    monkeypatch.setattr(measure, "measure", measured)
    with pytest.raises(StoppedError, match=f"2 of {len(wanted)} points"):
        bench_scale.scale(output=tmp_path / "scale", only=["fedmf"], quick=True)
    assert len(read_all(tmp_path / "scale")) == 2
    bench_scale.scale(output=tmp_path / "scale", only=["fedmf"], quick=True)
    assert called == [point.name for point in (*wanted[:3], *wanted[2:])]
    bench_scale.scale(output=tmp_path / "scale", only=["fedmf"], quick=True)
    assert len(called) == len(wanted) + 1
    bench_scale.scale(output=tmp_path / "scale", only=["fedmf"], quick=True, replace=True)
    assert len(called) == 2 * len(wanted) + 1


def test_a_failed_point_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def measured(point, table, worlds, say):
        if point.ranks == 2:
            raise measure.FailedError("no memory", "buy some")
        Store(table, ScaleRecord).add(made.record(1000, 500).model_copy(update={"point": point}))

    monkeypatch.setattr(measure, "measure", measured)
    with pytest.raises(typer.Exit):
        bench_scale.scale(output=tmp_path / "scale", only=["fedmf"], quick=True, json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["failed"] == ["fedmf-u300-i800-r2x1: no memory (buy some)"]
    assert said["recorded"] == said["points"] - 1 == len(read_all(tmp_path / "scale"))


@pytest.mark.slow
def test_the_run_of_a_point_that_fails_says_why(tmp_path):
    with pytest.raises(measure.FailedError, match="no-such-method"):
        measure._run(["train", "no-such-method", "--data", "ml-100k"], tmp_path)


@pytest.mark.slow
def test_ctrl_c_ends_the_run_of_a_point(tmp_path):
    """Its process too, which Ctrl-C on a terminal does not reach."""
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        measure._run(["data", "synthesize", "--users", "1e7", "-o", str(tmp_path / "x.csv")], tmp_path)
    timer.join()
    assert not [each for each in psutil.Process().children() if "synthesize" in each.cmdline()]


@pytest.mark.slow
def test_quick_points_from_data_to_prediction(tmp_path):
    """Real runs in real processes, with one and with two ranks."""
    measuring = [
        "bench",
        "scale",
        "--quick",
        "-o",
        tmp_path / "scale",
        "--worlds",
        tmp_path / "worlds",
        "--json",
    ]
    measuring += ["--only", "pfedrec-u150", "--only", "pfedrec-u300-i800-r2"]
    done = solera(*measuring, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recorded"] == 2
    small, ranked = read_all(tmp_path / "scale")
    assert (small.point.ranks, ranked.point.ranks) == (1, 2)
    for record in (small, ranked):
        seconds = record.seconds
        assert 0 < seconds.server < seconds.train < seconds.training < seconds.wall
        assert seconds.training + seconds.validation + seconds.test < seconds.wall
        assert record.tested == record.point.users
        assert record.validated == 100  # 50 users, twice
        assert record.bytes_down == 4 * record.embedding_size * record.world.items
        assert 1e8 < record.peak_bytes <= record.peak_of_all
        assert 0 < record.bytes_up < record.bytes_down
        assert str(tmp_path) not in record.model_dump_json()
    assert ranked.peak_of_all > 2 * 1e8
    assert small.plan is not None
    assert small.plan.bytes > 1e8
    before = (tmp_path / "scale.parquet").stat().st_mtime_ns
    assert solera(*measuring).returncode == 0
    assert (tmp_path / "scale.parquet").stat().st_mtime_ns == before
    predicted = solera("bench", "predict", "--records", tmp_path, "--json")
    assert [each["method"] for each in json.loads(predicted.stdout)["predicted"]] == ["pfedrec"]
