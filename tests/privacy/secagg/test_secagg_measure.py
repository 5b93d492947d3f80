from __future__ import annotations

import json

from typer.testing import CliRunner


def run(*arguments: str) -> list[dict]:
    from solera.cli import app

    done = CliRunner().invoke(app, ["bench", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_what_a_round_costs():
    (found,) = run("secagg", "--values", "1000", "--clients", "4", "--dropped", "1", "--repeats", "1")
    stages = ["advertise", "share", "mask", "confirm", "unmask"]
    assert list(found["client_seconds"]) == list(found["server_seconds"]) == stages
    assert found["plain_bytes_up"] == 4 + 1 + 32 + 2 + 2 + 4000
    assert found["bytes_up"] > found["plain_bytes_up"]
    assert found["total_ratio"] > 1


def test_what_a_sketch_keeps(dataset):
    dataset("filmtrust")
    whole, small = run("sketch", "--data", "filmtrust", "--sizes", "20")
    assert (whole["size"], small["size"]) == (None, 20)
    assert small["bytes"] < whole["bytes"]
