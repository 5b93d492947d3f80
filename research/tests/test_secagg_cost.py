"""What secure sums cost, and what sketched sums keep."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from closed_forms import closed_form


def run(*arguments: str) -> list[dict]:
    from solera.cli import app

    done = CliRunner().invoke(app, ["bench", "speed", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_what_a_round_costs():
    (found,) = run("secagg", "--values", "1000", "--clients", "4", "--dropped", "1", "--repeats", "1")
    stages = ["advertise", "share", "mask", "confirm", "unmask"]
    assert list(found["client_seconds"]) == list(found["server_seconds"]) == stages
    assert found["plain_bytes_up"] == 4 + 1 + 32 + 2 + 2 + 4000
    assert found["bytes_up"] > found["plain_bytes_up"]
    assert found["total_ratio"] > 1


@pytest.mark.slow
def test_what_a_sketch_keeps(dataset):
    dataset("filmtrust")
    whole, small = run("sketch", "--data", "filmtrust", "--sizes", "20")
    assert (whole["size"], small["size"]) == (None, 20)
    assert small["bytes"] < whole["bytes"]


@pytest.mark.slow
def test_with_whole_sums_the_accuracy_is_that_of_the_method(dataset):
    import solera
    from solera.runs import RunConfig, train
    from solera_research.speed.sketch import sketch_accuracy

    data = dataset("filmtrust")
    whole, large = sketch_accuracy("fedease", data, [200])
    assert whole["ndcg@10"] == pytest.approx(solera.train("fedease", data).test["full"]["ndcg@10"], abs=1e-9)
    assert large["ndcg@10"] > 0.9 * whole["ndcg@10"]
    assert large["bytes"] < whole["bytes"] / 4
    for masked in (False, True):
        asked = {"method": "fedease", "dataset": "filmtrust", "options": {"sketch": 200}, "rounds": 1}
        run = train(RunConfig.model_validate(asked | {"secure_aggregation": masked}), data)
        assert run.test["full"]["ndcg@10"] == pytest.approx(large["ndcg@10"], abs=1e-9)
    assert run.result.bytes.up == large["bytes"] + 4  # and the number of users


@pytest.mark.slow
def test_of_several_sums_every_one_is_whole(dataset):
    """fedslist's, added up channel by channel, against those the engine solves from."""
    from solera.data.sampling import ClientData
    from solera.engine import OneRound
    from solera.evaluate import split
    from solera_research.speed.sketch import whole_totals

    method, parts = closed_form("fedslist"), split(dataset("filmtrust"), "strict")
    clients = ClientData(parts.train, parts.excluded, parts.data.n_items)
    one_round = OneRound(method, clients, device=torch.device("cpu"), dtype=torch.float64)
    one_round.run_round(0)
    totals = {name: torch.from_numpy(total) for name, total in whole_totals(method, parts).items()}
    assert torch.allclose(method.aggregate.solve(totals), one_round.state.shared["weights"])
