"""Runs whose results are stored: a change of structure must not move a single bit of them.

On a machine and with libraries as those of `stored_runs.json` every number is compared bit by bit, elsewhere
within what another processor's arithmetic changes. A change that is meant to move results writes them anew:
`python tests/runs/test_stored_runs.py`.
"""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
import torch

import solera
from solera.engine import train_one_by_one

STORED = Path(__file__).with_name("stored_runs.json")
SMALL = {"rounds": 3, "embedding_size": 8, "clients_per_round": 0.7}
RUNS: dict[str, dict[str, Any]] = {
    "fedmf": SMALL,
    "fedmf, reference engine": SMALL,
    "fedmf, masked": SMALL | {"secure_aggregation": True},
    "fedmf, paper protocol, Laplace": SMALL | {"protocol": "paper", "noise": "laplace:0.5"},
    "fedmf, private": SMALL | {"dp": "epsilon=8,delta=1e-5,clip=1"},
    "fedmf, plgc": SMALL | {"plugins": ["plgc"]},
    "fedncf, elastic-merge": SMALL | {"plugins": ["elastic-merge"]},
    "pfedrec": SMALL | {"protocol": "global-time"},
    "fedrap": SMALL | {"precision": "double"},
    "pfedclr": SMALL,
    "fedem": SMALL,
    "fedhist": SMALL,
    "gpfedrec": SMALL,
    "colr": SMALL,
    "fedfast": SMALL,
    "fedease": {},
    "fedslist": {},
    "fedease, private": {"dp": "epsilon=8,delta=1e-5,clip=30"},
}


def interactions() -> solera.Interactions:
    """80 users in four groups of taste, 50 items."""
    draw = np.random.default_rng(7)
    users, items = [], []
    for user in range(80):
        likely = np.where(np.arange(50) % 4 == user % 4, 5.0, 1.0)
        for item in draw.choice(50, 6 + user % 9, replace=False, p=likely / likely.sum()):
            users.append(f"u{user}")
            items.append(f"i{item}")
    frame = polars.DataFrame({"user": users, "item": items, "timestamp": draw.permutation(len(users))})
    return solera.load(frame, name="made")


def outcome(name: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        if "reference engine" in name:
            patch.setattr("solera.runs.federation.BlockTraining", lambda threads: train_one_by_one)
        run = solera.train(
            name.split(",", maxsplit=1)[0], interactions(), threads=1, progress=False, **RUNS[name]
        )
    listed = run.recommend_many(k=50).sort("user", "item")
    scores = listed["score"].to_numpy()
    return {
        "rounds": run.history.select("loss", "bytes.up", "validation.full.ndcg@10").to_dicts(),
        **{name: {"full": each.full, "sampled99": each.sampled99} for name, each in run.result.tests.items()},
        "scores": {
            "some": scores[::200].tolist(),
            "all": hashlib.sha256(scores.tobytes()).hexdigest(),
            "ranks": hashlib.sha256(listed["rank"].to_numpy().tobytes()).hexdigest(),
        },
    }


def machine() -> dict[str, str]:
    """What decides in which order a processor adds."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": model[0].split(": ")[-1] if model else platform.processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


@pytest.mark.parametrize("name", RUNS)
def test_results_are_those_that_are_stored(name):
    stored = json.loads(STORED.read_text())
    found, expected = outcome(name), stored["runs"][name]
    if machine() == stored["machine"]:
        assert found == expected
        return
    losses, before = ([each["loss"] for each in run["rounds"]] for run in (found, expected))
    assert losses == pytest.approx(before, rel=1e-4)
    assert found["scores"]["some"] == pytest.approx(expected["scores"]["some"], rel=1e-2, abs=1e-3)


if __name__ == "__main__":
    content = {"machine": machine(), "runs": {name: outcome(name) for name in RUNS}}
    STORED.write_text(json.dumps(content, indent=1) + "\n")
