"""Item tables that are divided among ranks: the same bits as with whole tables, which nobody holds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import MappingProxyType
from unittest.mock import patch

import psutil
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import in_process
from made_ratings import write_ratings
from same_runs import content, same
from solera.core import spec
from solera.core.errors import DivergedError
from solera.data.datasets import load
from solera.engine import store
from solera.methods import find
from solera.runs.assembly import run_config
from solera.runs.folder import RunFolder
from solera.runs.rounds import StoppedError, Training
from threaded_ranks import on_ranks

ROUNDS, USERS, ITEMS = 3, 40, 120
METHODS = ("fedmf", "pfedrec", "fedrap", "fedhist", "fedncf")


@pytest.fixture(scope="module")
def ratings(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("sharded") / "r.csv"
    return write_ratings(place, users=USERS, items=ITEMS, each=6, seed=4)


def train(
    ratings: Path,
    out: Path,
    size: int,
    method: str = "fedmf",
    *,
    sharded: bool = True,
    stop_after: int | None = None,
    embedding_size: int = 4,
    watch: type | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> list:
    """Train on threads. Returns what `watch`, a context of every rank, has found."""
    given = {"embedding_size": str(embedding_size), "clients_per_round": "0.6", **options}
    config = run_config(method, str(ratings), options=given, rounds=ROUNDS).resolved()
    data, built = load(ratings), find(config.method, config.options, config.plugins)
    folder = RunFolder.open(out) if out.exists() else RunFolder.create(out, config, {})

    def work(ranks):
        with watch() if watch else nullcontext() as found:
            stop = Event()
            training = Training(config, built, data, 1, "cpu", ranks=ranks, shard_tables=sharded)

            def on_round(done):
                if done.rounds_done == stop_after:
                    stop.set()

            own = None if ranks.rank else folder
            training.run(own, on_round, stop, read=folder)
            return found

    return on_ranks(size, work)


@pytest.mark.parametrize(
    "method", ["fedmf", *(pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name != "fedmf")]
)
def test_sharded_tables_give_the_same_bits(ratings, tmp_path, method):
    train(ratings, tmp_path / "whole", 2, method, sharded=False)
    whole = content(tmp_path / "whole")
    for size in (1, 3):
        train(ratings, tmp_path / str(size), size, method)
        same(whole, content(tmp_path / str(size)))


def test_all_ranks_say_that_training_diverged(ratings, tmp_path):
    """Nobody waits for a rank that has stopped."""
    said = []

    class Heard:
        def __enter__(self):
            return None

        def __exit__(self, kind, error, trace):
            said.append(kind)
            return True

    train(ratings, tmp_path / "run", 2, options={"learning_rate": "1e30"}, watch=Heard)
    assert said == [DivergedError, DivergedError]


def test_personal_tables_that_are_stored_by_rows_are_sharded_too(ratings, tmp_path):
    with patch.object(store, "TABLE_BYTES", 0):
        train(ratings, tmp_path / "whole", 1, "fedrap", sharded=False)
        train(ratings, tmp_path / "3", 3, "fedrap")
    same(content(tmp_path / "whole"), content(tmp_path / "3"))


def test_a_run_continues_with_another_number_of_ranks_and_with_whole_tables(ratings, tmp_path):
    train(ratings, tmp_path / "straight", 2, "pfedrec")
    for done, size in ((1, 2), (2, 3)):
        with pytest.raises(StoppedError):
            train(ratings, tmp_path / "changed", size, "pfedrec", stop_after=done)
    train(ratings, tmp_path / "changed", 2, "pfedrec", sharded=False)
    same(content(tmp_path / "straight"), content(tmp_path / "changed"))


class Largest(TorchDispatchMode):
    """The most numbers that any tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, list | tuple) else (found,):
            if isinstance(each, torch.Tensor):
                self.numbers = max(self.numbers, each.numel())
        return found


@pytest.mark.parametrize("method", ["fedmf", "fedhist"])
def test_no_rank_ever_has_a_tensor_as_large_as_a_table(ratings, tmp_path, method):
    size = 64
    table = load(ratings).n_items * size
    whole = train(ratings, tmp_path / "a", 2, method, sharded=False, embedding_size=size, watch=Largest)
    with patch.object(spec, "_DRAWN_ROWS", 16):
        parts = train(ratings, tmp_path / "b", 2, method, embedding_size=size, watch=Largest)
    assert all(each.numbers >= table for each in whole)
    assert all(each.numbers < table for each in parts)


def command(ratings: Path, out: Path, *given: str, method: str = "fedmf", rounds: int = 2) -> list[str]:
    options = ("-o", "embedding_size=4", "-o", "clients_per_round=0.6", "--rounds", str(rounds), "--json")
    start = (sys.executable, "-m", "solera", "train", method, "--data", str(ratings))
    return [*start, *options, "--out", str(out), *given]


def run(given: list[str]) -> None:
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["test"]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_processes_give_the_same_bits(ratings, tmp_path, method):
    run(command(ratings, tmp_path / "whole", "--workers", "1", method=method))
    for count in (1, 2, 3):
        out = tmp_path / str(count)
        run(command(ratings, out, "--workers", str(count), "--shard-tables", method=method))
        same(content(tmp_path / "whole"), content(out))


@pytest.mark.slow
def test_a_killed_run_continues_with_another_number_of_processes(ratings, tmp_path):
    rounds = 300
    run(command(ratings, tmp_path / "whole", "--workers", "2", "--shard-tables", rounds=rounds))
    started = subprocess.Popen(
        command(ratings, tmp_path / "killed", "--workers", "2", "--shard-tables", rounds=rounds),
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("checkpoint-*[0-9]")):
        assert time.monotonic() < deadline
        assert started.poll() is None
        time.sleep(0.05)
    family = [*psutil.Process(started.pid).children(recursive=True), psutil.Process(started.pid)]
    for each in family[::-1]:  # the one that starts lost ranks again first
        each.kill()
    psutil.wait_procs(family, timeout=30)
    given = ("--workers", "3", "--shard-tables", "--resume")
    run(command(ratings, tmp_path / "killed", *given, rounds=rounds))
    same(content(tmp_path / "whole"), content(tmp_path / "killed"))


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("fedmf", ("--shard-tables",), "divides tables among workers"),
        ("fedmf", ("--shard-tables", "--workers", "2", "--download", "int8"), "codes whole tables"),
        ("gpfedrec", ("--shard-tables", "--workers", "2"), "needs more of a table than single rows"),
        ("perfedrec", ("--shard-tables", "--workers", "2"), "needs more of a table than single rows"),
        ("fedrap", ("--shard-tables", "--workers", "2", "-o", "decay=all-rows"), "decay acts on all rows"),
        ("fedfast", ("--shard-tables", "--workers", "2", "-o", "users=sent"), "vectors of all users"),
        ("plgc", ("--shard-tables", "--workers", "2"), "clients use whole item tables"),
        ("local", ("--shard-tables", "--workers", "2"), "no shared item table"),
    ],
)
def test_what_cannot_be_sharded_is_said_at_once(ratings, tmp_path, method, given, said):
    done = in_process.solera(*command(ratings, tmp_path / "run", *given, method=method)[3:])
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "run").exists()
