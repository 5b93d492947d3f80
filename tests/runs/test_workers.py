"""Real torch.distributed ranks: the same result for any number of them, also if one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from same_runs import content, same
from typer.testing import CliRunner

from made_ratings import write_ratings
from solera.cli import app
from solera.core.errors import ConfigError
from solera.engine.ranks import SHARDS, Ranks, deal
from solera.engine.shares import Share


@pytest.fixture(scope="module")
def ratings(tmp_path_factory) -> Path:
    return write_ratings(tmp_path_factory.mktemp("workers") / "r.csv", users=70, items=50, each=9, seed=2)


def command(ratings: Path, out: Path, workers: int, method: str, rounds: int = 3) -> list[str]:
    """`method` may have options, as in fedease:neighbours=5; it is then a method of one round."""
    name, *given = method.split(":")
    if name in {"fedease", "fedslist"}:
        rounds, options = 1, tuple(word for each in given for word in ("-o", each))
    else:
        options = ("-o", "embedding_size=4", "-o", "clients_per_round=0.6")
    data = ("--data", str(ratings), "--rounds", str(rounds), "--workers", str(workers), "--json")
    return [sys.executable, "-m", "solera", "train", name, *data, "--out", str(out), *options]


def trained(ratings: Path, out: Path, workers: int, method: str, *more: str) -> tuple[dict, list, dict]:
    """Result, history and model of a run, without what time does to them."""
    given = [*command(ratings, out, workers, method), *more]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["out"] == str(out)
    return content(out)


@pytest.mark.parametrize(
    ("method", "ranks"),
    [
        pytest.param("pfedrec", (2,), marks=pytest.mark.slow),
        pytest.param("pfedrec", (3, 5), marks=pytest.mark.slow),
        pytest.param("fedmf", (2, 3, 5), marks=pytest.mark.slow),
        pytest.param("fedrap", (2, 3, 5), marks=pytest.mark.slow),
        pytest.param("fedhist", (2, 3, 5), marks=pytest.mark.slow),
        pytest.param("fedsasrec", (2, 3), marks=pytest.mark.slow),
        pytest.param("fedem", (2, 3), marks=pytest.mark.slow),
        pytest.param("gpfedrec", (2, 3), marks=pytest.mark.slow),
        pytest.param("pfedgraph", (3,), marks=pytest.mark.slow),
        pytest.param("perfedrec", (5,), marks=pytest.mark.slow),
        pytest.param("fedease", (2, 3, 5), marks=pytest.mark.slow),
        pytest.param("fedslist", (2, 3, 5), marks=pytest.mark.slow),
        pytest.param("fedease:neighbours=5", (2, 3, 5), marks=pytest.mark.slow),
        pytest.param("fedslist:neighbours=5", (2, 3, 5), marks=pytest.mark.slow),
    ],
)
def test_any_number_of_ranks_gives_the_same_bits(ratings, tmp_path, method, ranks):
    alone = trained(ratings, tmp_path / "1", 1, method)
    for count in ranks:
        same(alone, trained(ratings, tmp_path / str(count), count, method))


@pytest.mark.slow
def test_ranks_code_alike(ratings, tmp_path):
    coded = ("--upload", "int8", "--download", "int8")
    alone = trained(ratings, tmp_path / "1", 1, "pfedrec", *coded)
    same(alone, trained(ratings, tmp_path / "2", 2, "pfedrec", *coded))
    assert "residual/items/values" in alone[2]["personal.safetensors"]


@pytest.mark.slow
def test_killed_ranks_are_started_again_and_change_nothing(ratings, tmp_path):
    rounds = 600
    whole = command(ratings, tmp_path / "whole", 2, "pfedrec", rounds)
    assert subprocess.run(whole, capture_output=True, check=False).returncode == 0
    started = subprocess.Popen(
        command(ratings, tmp_path / "killed", 2, "pfedrec", rounds), stdout=subprocess.DEVNULL
    )
    reached: set[Path] = set()
    for place in (-1, 0):  # first one rank, later the other
        deadline = time.monotonic() + 120
        while not (found := set((tmp_path / "killed").glob("checkpoint-*[0-9]")) - reached):
            assert time.monotonic() < deadline
            assert started.poll() is None
            time.sleep(0.05)
        reached |= found
        ranks = [each for each in psutil.Process(started.pid).children() if "solera" in each.cmdline()]
        ranks[place].kill()
    assert started.wait(timeout=300) == 0
    same(content(tmp_path / "whole"), content(tmp_path / "killed"))


def test_shards_cost_about_the_same_and_belong_to_one_rank_each():
    sizes = np.random.default_rng(0).lognormal(3, 1, 5000).astype(np.int64)
    cost = np.bincount(deal(sizes, SHARDS), sizes, SHARDS)
    assert cost.max() < 1.05 * cost.min()
    for size in (1, 2, 3, 5):
        shares = [Share(Ranks(rank, size), sizes) for rank in range(size)]
        assert sorted(np.concatenate([share.clients for share in shares])) == list(range(5000))


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_can_be_resumed(ratings, tmp_path):
    whole = command(ratings, tmp_path / "whole", 2, "fedmf", 150)
    assert subprocess.run(whole, capture_output=True, check=False).returncode == 0
    given = command(ratings, tmp_path / "stopped", 2, "fedmf", 150)
    started = subprocess.Popen(given, stdout=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "stopped").glob("checkpoint*")):
        assert time.monotonic() < deadline
        assert started.poll() is None
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGINT)
    said, _ = started.communicate(timeout=120)
    assert started.returncode == 130
    assert "the same command again with --resume" in said
    assert subprocess.run([*given, "--resume"], capture_output=True, check=False).returncode == 0
    same(content(tmp_path / "whole"), content(tmp_path / "stopped"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--dp", "epsilon=8,delta=1e-5"), "cannot protect uploads"),
        (("--plugin", "robust"), "needs single clients' uploads"),
    ],
)
def test_what_workers_cannot_do_is_said_before_they_start(ratings, tmp_path, given, said):
    _, _, _, *asked = command(ratings, tmp_path / "run", 2, "fedmf")
    done = CliRunner().invoke(app, [*asked, *given])
    assert isinstance(done.exception, ConfigError)
    assert said in done.exception.message
    assert not (tmp_path / "run").exists()
