"""The papers' noise, which guarantees nothing and says so."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from solera.cli import app
from solera.core.errors import ConfigError
from solera.core.leaf import Home, Leaf
from solera.core.upload import Upload
from solera.dp.laplace import LaplaceNoise
from solera.dp.settings import PaperLaplace
from solera.engine import train_one_by_one
from solera.runs import RunConfig, train

LEAVES = (
    Leaf("items", (5,), Home.SHARED, per_item=True, upload=True),
    Leaf("layer", (3,), Home.SHARED, upload=True),
)


def laplace(n_items: int) -> LaplaceNoise:
    return LaplaceNoise(PaperLaplace(scale=0.5), 0, n_items)


def test_noise_is_laplace_on_all_rows() -> None:
    """Two clients and 10,000 items; the first touches the last 4,000 of them, the second all."""
    rows = torch.cat([torch.arange(6_000, 10_000), torch.arange(10_000)])
    upload = Upload(
        rows, torch.tensor([4_000, 10_000]), {"items": torch.ones(14_000, 5), "layer": torch.zeros(2, 3)}
    )
    sent = laplace(10_000).upload(upload, LEAVES, np.array([3, 4], np.uint64))
    assert torch.equal(sent.rows, torch.arange(10_000).repeat(2))
    assert sent.row_counts.tolist() == [10_000, 10_000]
    changed = torch.ones(20_000, 5)
    changed[:6_000] = 0
    noise = (sent.changes["items"] - changed).double().flatten()
    n = len(noise)
    assert float(noise[: 5 * 6_000].abs().mean()) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(30_000))
    assert float(noise.mean()) == pytest.approx(0, abs=4 * 0.71 / math.sqrt(n))
    assert float(noise.abs().mean()) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(n))
    assert float(noise.std()) == pytest.approx(0.5 * math.sqrt(2), rel=0.02)
    assert float((noise.abs() > 0.5 * math.log(20)).double().mean()) == pytest.approx(0.05, abs=0.004)
    assert bool((sent.changes["layer"] != 0).all())


def test_a_kept_table_has_the_noise_of_its_upload() -> None:
    leaves = (
        Leaf("score", (2,), Home.SHARED, upload=True),
        Leaf("local", (5,), Home.PERSONAL, per_item=True, feeds="items"),
    )
    noise, keys = laplace(4), np.array([3, 4], np.uint64)
    upload = Upload(
        torch.tensor([1, 0, 2]),
        torch.tensor([1, 2]),
        {"score": torch.zeros(2, 2), "items": torch.zeros(3, 5)},
    )
    sent = noise.upload(upload, leaves, keys).changes["items"].view(2, 4, 5)
    tables = torch.arange(40.0).view(2, 4, 5)
    assert torch.equal(noise.tables(tables, leaves, "local", keys), tables + sent)
    assert torch.equal(tables, torch.arange(40.0).view(2, 4, 5)), "clients keep them as they are"


@pytest.mark.parametrize("method", ["fedem", "gpfedrec", "fedmf+elastic-merge"])
def test_a_server_that_mixes_single_tables_mixes_noise(small, method) -> None:
    name, *plugins = method.split("+")
    options = {"embedding_size": 4} | ({"merge_server": "code"} if plugins else {})
    fields = {
        "method": name,
        "plugins": plugins,
        "dataset": "x",
        "rounds": 2,
        "options": options,
    }
    few, much = (
        train(RunConfig.model_validate(fields | {"noise": {"scale": scale}}), small, threads=1)
        for scale in (1e-9, 50.0)
    )
    mixed = few._simulation.method.aggregate.target
    tables = [run._simulation.state.shared[mixed].abs().max() for run in (few, much)]
    assert tables[0] < 10 < tables[1]


@pytest.mark.parametrize("method", ["fedmf", "fedem"])
def test_engines_draw_the_same(small, method, monkeypatch) -> None:
    fields = {"method": method, "dataset": "x", "rounds": 2, "noise": {"scale": 0.1}, "precision": "double"}
    fields |= {"options": {"embedding_size": 4, "local_epochs": 1}}
    one = train(RunConfig.model_validate(fields), small, threads=1)
    monkeypatch.setattr("solera.runs.federation.BlockTraining", lambda threads: train_one_by_one)
    two = train(RunConfig.model_validate(fields), small, threads=1)
    assert one.test["full"] == pytest.approx(two.test["full"], abs=1e-12)
    assert one.result.privacy["guarantee"] == "no guarantee"


@pytest.mark.parametrize("text", ["laplace=1", "laplace", "laplace:0", "paper-laplace=x", ""])
def test_other_noise_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a valid --noise"):
        PaperLaplace.parse(text)


@pytest.fixture
def command(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["user,item"]
    for user in range(small.n_users):
        rows += [f"u{user},i{item}" for item in small.by_user.row(user)]
    (tmp_path / "r.csv").write_text("\n".join(rows) + "\n")

    def call(*arguments: str):
        return CliRunner().invoke(app, ["train", *arguments, "--data", "r.csv"])

    return call


def test_every_form_of_a_result_says_no_guarantee(command) -> None:
    shown = command("fedmf", "--rounds", "2", "--noise", "laplace:0.5").stdout
    assert "NO GUARANTEE" in shown
    assert "ε = 8" in " ".join(shown.split())  # 2 rounds of 2 · 1 / 0.5
    found = json.loads(command("fedmf", "--rounds", "2", "--noise", "laplace:0.5", "--json").stdout)
    assert found["privacy"]["guarantee"] == "no guarantee"
    assert found["privacy"]["epsilon"] is None
    assert found["privacy"]["epsilon_with_the_clip_it_lacks"] == 8.0


def test_dp_on_the_command_line(command) -> None:
    dp = ("--dp", "epsilon=2,delta=1e-3,clip=0.5")
    shown = " ".join(command("fedmf", "--rounds", "2", *dp, "-o", "clients_per_round=0.5").stdout.split())
    assert "ε = 2, δ = 0.001 per user (add or remove one user), central" in shown
    assert "Poisson" in shown
    assert "clip 0.5" in shown
    assert "seeded: for research" in shown
    for wrong, why in (
        (("fedmf", "--dp", "epsilon=8"), "delta"),
        (("fedhist", *dp), "changed a row"),
        (("fedmf", *dp, "--patience", "3"), "patience"),
        (("fedmf", *dp, "--noise", "laplace:1"), "--noise"),
        (("fedease", "--noise", "laplace:1"), "--noise"),
        (("fedmf", *dp, "-o", "clients_per_round=30"), "probability"),
    ):
        refused = command(*wrong)
        assert refused.exit_code != 0
        assert why in str(refused.exception) + refused.output
