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
import torch
from safetensors.numpy import load_file

from made_ratings import write_ratings
from solera.core.upload import Sums
from solera.engine.ranks import SHARDS, Ranks, Share, deal, exact


@pytest.fixture(scope="module")
def ratings(tmp_path_factory) -> Path:
    return write_ratings(tmp_path_factory.mktemp("workers") / "r.csv", users=70, items=50, each=9, seed=2)


def command(ratings: Path, out: Path, workers: int, method: str, rounds: int = 3) -> list[str]:
    options = ("-o", "embedding_size=4", "-o", "clients_per_round=0.6")
    data = ("--data", str(ratings), "--rounds", str(rounds), "--workers", str(workers), "--json")
    return [sys.executable, "-m", "solera", "train", method, *data, "--out", str(out), *options]


def trained(ratings: Path, out: Path, workers: int, method: str, *more: str) -> tuple[dict, list, dict]:
    """Result, history and model of a run, without what time does to them."""
    given = [*command(ratings, out, workers, method), *more]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["out"] == str(out)
    return content(out)


def content(out: Path) -> tuple[dict, list, dict]:
    result = json.loads((out / "result.json").read_text())
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    for each in (result, *history):
        for key in ("seconds", "seconds_per_round", "peak_bytes"):
            each.pop(key, None)
    tensors = {path.name: load_file(path) for path in sorted(out.glob("*.safetensors"))}
    return result, history, tensors


def same(one: tuple[dict, list, dict], two: tuple[dict, list, dict]) -> None:
    assert one[0] == two[0]
    assert one[1] == two[1]
    assert one[2].keys() == two[2].keys() != set()
    for name, tensors in one[2].items():
        for key, value in tensors.items():
            assert np.array_equal(value, two[2][name][key]), f"{name}: {key}"


@pytest.mark.parametrize(
    ("method", "ranks"),
    [
        ("pfedrec", (2, 3)),
        pytest.param("pfedrec", (5,), marks=pytest.mark.slow),
        pytest.param("fedmf", (2, 3, 5), marks=pytest.mark.slow),
        pytest.param("fedrap", (2, 3, 5), marks=pytest.mark.slow),
        pytest.param("fedhist", (2, 3, 5), marks=pytest.mark.slow),
    ],
)
def test_any_number_of_ranks_gives_the_same_bits(ratings, tmp_path, method, ranks):
    alone = trained(ratings, tmp_path / "1", 1, method)
    for count in ranks:
        same(alone, trained(ratings, tmp_path / str(count), count, method))


def test_ranks_code_alike(ratings, tmp_path):
    coded = ("--upload", "int8", "--download", "pq:2")
    alone = trained(ratings, tmp_path / "1", 1, "pfedrec", *coded)
    same(alone, trained(ratings, tmp_path / "2", 2, "pfedrec", *coded))
    assert "residual/items/values" in alone[2]["personal.safetensors"]


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_changes_nothing(ratings, tmp_path):
    rounds = 400
    whole = command(ratings, tmp_path / "whole", 2, "pfedrec", rounds)
    assert subprocess.run(whole, capture_output=True, check=False).returncode == 0
    started = subprocess.Popen(
        command(ratings, tmp_path / "killed", 2, "pfedrec", rounds), stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("checkpoint*")):
        assert time.monotonic() < deadline
        assert started.poll() is None
        time.sleep(0.05)
    ranks = [each for each in psutil.Process(started.pid).children() if "solera" in each.cmdline()]
    ranks[-1].kill()
    assert started.wait(timeout=300) == 0
    same(content(tmp_path / "whole"), content(tmp_path / "killed"))


def test_shards_cost_about_the_same_and_belong_to_one_rank_each():
    sizes = np.random.default_rng(0).lognormal(3, 1, 5000).astype(np.int64)
    cost = np.bincount(deal(sizes, SHARDS), sizes, SHARDS)
    assert cost.max() < 1.05 * cost.min()
    for size in (1, 2, 3, 5):
        shares = [Share.of(Ranks(rank, size), sizes) for rank in range(size)]
        assert sorted(np.concatenate([share.clients for share in shares])) == list(range(5000))


class Alone(Ranks):
    """Ranks that have already seen the peaks of all others."""

    def largest(self, values):
        return values


def test_rounded_sums_add_up_to_the_same_bits_in_any_order():
    draw = torch.Generator().manual_seed(1)
    rows = torch.arange(4)
    sums = [
        Sums(rows, torch.ones(4), 1.0, {"items": torch.randn(4, 3, generator=draw, dtype=torch.float64) ** 7})
        for _ in range(SHARDS)
    ]
    plain = [each.changes["items"] for each in sums]
    rounded = [each.changes["items"] for each in exact(Alone(0, 1), sums, ["items"])]
    assert torch.equal(added(rounded), added(rounded[::-1]))
    assert not torch.equal(added(plain), added(plain[::-1]))
    assert torch.allclose(added(rounded), added(plain), rtol=1e-10)


def added(values: list[torch.Tensor]) -> torch.Tensor:
    """The sum, one after the other."""
    total = torch.zeros_like(values[0])
    for each in values:
        total = total + each
    return total


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
