"""Axes, and figures whose values are known."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import figures as made_figures
from made import write_run

import solera
from solera.report import make_page, read_runs
from solera.report.chart import Scale, extent, short, ticks
from solera.report.figures import Measured, against, by_option, make_figures
from solera.runs import Run
from solera.study.statistics import interval

NUMBERS = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.booleans())
def test_an_axis_holds_its_values_and_some_round_numbers(values, zero):
    low, high = extent(values, zero=zero)
    assert low <= min(values) <= max(values) <= high
    found = ticks(low, high)
    assert 2 <= len(found) <= 9
    slack = 1e-6 * (high - low)
    assert all(low - slack <= tick <= high + slack for tick in found)


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20))
def test_a_logarithmic_axis_holds_its_values(values):
    low, high = extent(values, log=True)
    assert 0 < low <= min(values) <= max(values) <= high
    found = ticks(low, high, log=True)
    assert found and len(found) <= 7
    assert all(low * 0.999 <= tick <= high * 1.001 for tick in found)


def test_scales_by_hand():
    assert Scale(0, 10, 100, 200)(5) == 150
    assert Scale(1, 100, 0, 10, log=True)(10) == pytest.approx(5)


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.25, "0.25"), (1234567, "1.23e6"), (2000, "2,000"), (0.00012, "1.2e-4")]
)
def test_short_numbers(value, shown):
    assert short(value) == shown


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> list[Path]:
    """Two runs on a file of one's own, which is at hand."""
    folder = tmp_path_factory.mktemp("trained")
    draw = random.Random(0)
    lines = ["user,item,time"]
    for user in range(40):
        lines += [
            f"u{user},i{item},{number}" for number, item in enumerate(draw.sample(range(60), 6 + user % 13))
        ]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")
    data = solera.load(str(folder / "ratings.csv"))
    for method in ("pfedrec", "fedrap"):
        solera.train(method, data, rounds=2, seed=0, out=folder / method)
        config = (folder / method / "config.json").read_text()
        path = folder / method / "config.json"
        path.write_text(config.replace('"dataset": "ratings"', f'"dataset": "{folder / "ratings.csv"}"'))
    return [folder / "pfedrec", folder / "fedrap"]


def test_intervals_are_the_bootstrap_over_users(trained):
    runs = read_runs(trained)
    for run in runs:
        assert run.users is not None, run.without_users
        again = Run.open(run.path).evaluate()
        assert run.result
        found = run.users.intervals["full"]["ndcg@10"]
        assert found == interval(again.full_ranking.per_user["ndcg@10"])
        assert found.mean == pytest.approx(run.result.test["full"]["ndcg@10"])
        assert f"{found.low:.4f} – {found.high:.4f}" in make_page(runs, make_figures(runs))


def test_charts_of_validation_have_the_line_of_popularity(trained):
    """The line is the popularity baseline's own figure, at the first and the last round."""
    data = solera.load(str(trained[0].parent / "ratings.csv"))
    expected = solera.baseline("popularity", data).result.validation
    runs = read_runs(trained)
    charts = {figure.name: figure.chart for some in make_figures(runs).values() for figure in some}
    for name, value in (
        ("convergence-validation-full", expected.full["ndcg@10"]),
        ("convergence-validation-sampled99", expected.sampled99["hr@10"]),
        ("quality-by-traffic", expected.full["ndcg@10"]),
    ):
        (line,) = [each for each in charts[name].series if each.label == "popularity"]
        assert line.y == [value, value]
        others = [x for each in charts[name].series if each is not line for x in each.x]
        assert line.x == [min(others), max(others)]
    assert "popularity" not in [each.label for each in charts["convergence-loss"].series]


def test_a_model_that_no_longer_gives_its_figures_has_no_intervals(trained, tmp_path):
    import json
    import shutil

    shutil.copytree(trained[0], tmp_path / "run")
    path = tmp_path / "run" / "result.json"
    result = json.loads(path.read_text())
    result["test"]["full"]["hr@10"] += 0.1
    path.write_text(json.dumps(result))
    (run,) = read_runs([tmp_path / "run"])
    assert run.users is None
    assert "the model in run has test full hr@10" in run.without_users
    assert "as in its result.json" in run.without_users


def test_the_users_of_all_quarters_are_counted_once(trained):
    figures = {f.name: f for some in make_figures(read_runs(trained)).values() for f in some}
    for label in ("pfedrec", "fedrap"):
        rows: list[Any] = [row for row in figures["activity-full"].rows if row[0] == label]
        assert sum(row[3] for row in rows) == 40


def test_without_the_data_single_users_stay_out(trained):
    runs = read_runs(trained, use_data=False)
    made = make_figures(runs)
    assert made["activity"] == []


def test_runs_that_differ_in_one_setting_stand_against_it(tmp_path):
    results = [write_run(tmp_path / str(rounds), rounds=rounds) for rounds in (4, 2, 3)]
    ndcg, hr = by_option(read_runs([tmp_path / "4", tmp_path / "2", tmp_path / "3"], use_data=False))
    assert (ndcg.title, hr.title) == ("NDCG@10 against rounds", "HR@10 against rounds")
    validation, test = ndcg.chart.series
    assert validation.x == [2, 3, 4]
    by_rounds = {result["rounds"]: result for result in results}
    assert validation.y == [by_rounds[n]["validation"]["full"]["ndcg@10"] for n in (2, 3, 4)]
    assert test.y == [by_rounds[n]["test"]["full"]["ndcg@10"] for n in (2, 3, 4)]
    assert validation.ring == test.ring == max(range(3), key=lambda place: validation.y[place])
    assert hr.rows[0][0] == 2


def test_runs_that_differ_in_more_or_in_the_seed_alone_have_no_such_figure(tmp_path):
    write_run(tmp_path / "a", rounds=2)
    write_run(tmp_path / "b", rounds=2, seed=1)
    write_run(tmp_path / "c", rounds=2, method="fedncf")
    assert by_option(read_runs([tmp_path / name for name in "abc"], use_data=False)) == []


def test_of_many_other_settings_the_best_on_validation_are_shown():
    def measured(value, other, validation, test):
        figures = {
            "validation": {"ndcg@10": validation, "hr@10": 0.0},
            "test": {"ndcg@10": test, "hr@10": 0.0},
        }
        return Measured({"a": value, "b": other}, figures)

    made = [measured(value, other, (value + other) % 5 / 10, other) for value in (1, 2) for other in range(5)]
    validation, test = against("a", made)[0].chart.series
    assert validation.y == [0.4, 0.4]
    assert test.y == [3, 2], "of the same trials, though 4 would be more"


def test_settings_without_order_are_bars():
    made = [
        Measured({"optimizer": name}, {"validation": {"ndcg@10": figure, "hr@10": figure}})
        for name, figure in (("sgd", 0.1), ("adam", 0.2))
    ]
    chart = against("optimizer", made)[0].chart
    assert (chart.kind, chart.categories, list(chart.series[0].y)) == ("bars", ["sgd", "adam"], [0.1, 0.2])


def test_a_chart_has_one_data_set_under_one_protocol_and_one_test(tmp_path):
    """Runs of two data sets, of two protocols, and one with `test_train` alone: never on one axis."""
    shown: dict[str, dict[str, Any]] = {
        "a": {},
        "b": {"method": "pfedrec"},
        "elsewhere": {"dataset": "others.csv"},
        "leaky": {"protocol": "paper"},
        "once": {"test": None, "test_train": made_figures(random.Random(0))},
    }
    for name, more in shown.items():
        write_run(tmp_path / name, **more)
    runs = read_runs([tmp_path / name for name in shown], use_data=False)
    made = make_figures(runs)
    splits = {run.title: (run.split, run.tested) for run in runs}
    assert len(set(splits.values())) == 4

    def of(section: str, name: str) -> list[set[Any]]:
        return [{row[0] for row in figure.rows} for figure in made[section] if figure.name.startswith(name)]

    headlines = of("headline", "headline")
    assert sorted(len(titles) for titles in headlines) == [1, 1, 1, 1, 1, 1, 2, 2]
    assert all(len({splits[title] for title in titles}) == 1 for titles in headlines)
    assert sorted(len(titles) for titles in of("cost", "traffic")) == [1, 1, 3]
    names = [figure.name for some in made.values() for figure in some]
    assert len(names) == len(set(names)), "each has a file of its own"
    full = [figure for figure in made["headline"] if "full" in figure.name]
    assert sorted(figure.title.startswith("test_train") for figure in full) == [False, False, False, True]
