"""What `solera compare` says of methods and baselines side by side."""

from __future__ import annotations

import pytest
from benchmark import made
from rich.console import Console

from solera.cli.compare import side_by_side
from solera.runs.presets import methods_and_baselines


def test_baselines_stand_beside_methods():
    assert methods_and_baselines(["fedmf", "ease", "local"]) == (["fedmf", "local"], ["ease"])
    assert methods_and_baselines(["fedmf"]) == (["fedmf"], ["popularity", "ease"])
    named = ["fedmf", "strict:ease/ml-100k"]
    assert methods_and_baselines(named) == (named, [])


# Everybody's test item in place 1 has an NDCG of 1, in place 3 one of 1/2, in place 20 one of 0 at 10.
# With the training items alone, it is in place 20.
SHORT = [20.0, 20.0]
ALONE, BEST = made("local", SHORT, [3.0, 3.0]), made("ease", SHORT, [1.0, 1.0], kind="baseline")
HALF, NONE = made("fedmf", SHORT, [1.0, 3.0]), made("fedncf+elastic-merge", SHORT, [20.0, 1.0])


def test_what_collaboration_gains(tmp_path):
    """Of the gap from 1/2 to 1, an NDCG of 3/4 closes half, and one of 1/2 nothing."""
    worse = made("popularity", SHORT, [3.0, 20.0], kind="baseline")
    found = side_by_side([NONE, HALF, worse, ALONE, BEST], [], tmp_path)
    closed = {run["label"]: run["gap_closed"] for run in found.document["runs"]}
    assert closed == {
        "ease": None,
        "fedmf": 0.5,
        "fedncf+elastic-merge": 0.0,
        "local": None,
        "popularity": None,
    }
    said = next(each for each in found.shown if isinstance(each, str))
    assert "(local) reaches a test NDCG of 0.5000" in said and "(ease) 1.0000" in said
    assert said.endswith("fedmf 50%, fedncf+elastic-merge 0%")


@pytest.mark.parametrize(
    "records",
    [
        [HALF, ALONE],
        [HALF, BEST],
        [HALF, made("local", SHORT, [1.0, 1.0]), BEST],
        [made("fedmf", [1.0, 3.0]), made("local", [3.0, 3.0]), made("ease", [1.0, 1.0], kind="baseline")],
        [],
    ],
    ids=["no baseline", "nobody alone", "no gap", "tests of different histories", "nothing"],
)
def test_without_a_gap_nothing_is_said_of_it(records, tmp_path):
    found = side_by_side(records, [], tmp_path)
    assert all(run["gap_closed"] is None for run in found.document["runs"])
    assert "it takes `local` and a better centralized baseline" in str(found.shown)


def test_every_figure_is_whole_in_80_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("solera.cli.output.out", Console(width=80))
    for each in side_by_side([HALF, NONE, ALONE, BEST], [], tmp_path).shown:
        if not isinstance(each, str):
            each.print()
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines() if line.split()[:1] == ["fedmf"]]
    assert [figure for line in lines for figure in line[1:]] == (
        ["0.7500", "0.7500", "1.0000", "50", "9", "98", "1.0000", "0.0000"]
    )
    assert "…" not in printed and all(len(line) <= 80 for line in printed.splitlines()[:-1])
