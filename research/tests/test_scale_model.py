"""The cost model: known costs are found again, and predictions add up."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scale_records as made
from solera.core.errors import ConfigError, RunError
from solera.study.records import Store
from solera_research.cli import scale as bench_scale
from solera_research.scale.fit import Size, check, coefficients, fit, measured, of_run
from solera_research.scale.forecast import Limits, Prices, by_formula, forecast, parse
from solera_research.scale.records import ScaleRecord


def test_known_costs_are_found_again():
    """The records were made with these numbers by formulas of their own."""
    costs = fit(made.some()).costs
    assert costs["local"] == pytest.approx(
        {
            "client × training item × d": made.PER_TRAINED,
            "table number": made.PER_TABLE_NUMBER_SUMMED,
        }
    )
    assert costs["server"] == pytest.approx({"table number": made.SERVER})
    assert costs["evaluation"] == pytest.approx({"item": made.PER_ITEM_RANKED, "user": made.PER_USER_RANKED})
    assert costs["start"] == pytest.approx({"fixed": made.START, "interaction": made.PER_INTERACTION})
    assert costs["memory"] == pytest.approx(
        {
            "fixed": made.PROGRAM,
            "table number": made.PER_TABLE_NUMBER,
            "client": made.PER_CLIENT,
            "kept number": made.PER_KEPT,
        },
        rel=1e-4,
    )
    assert costs["up"] == pytest.approx({"touched number": made.UP})
    assert costs["down"] == pytest.approx({"table number": made.DOWN})


def test_a_prediction_by_hand():
    """One round of 100,000 clients among 10⁸ users and 10⁷ items on 64 ranks, d = 10, 18 items each."""
    model = fit(made.some())
    size = Size(1e8, 1e7, 1e5, rounds=1, ranks=64, embedding_size=10)
    found = forecast(model, size, Prices(core_hour=0.1, gb_per_core=1e6, gb_out=0.01), Limits())
    local = 2e-7 * 1e5 * 18 * 10 + 5e-8 * 1e7 * 10  # 3.6 + 5 core seconds
    server = 3e-8 * 1e7 * 10  # 3 s
    assert local == pytest.approx(8.6)
    assert found.seconds == pytest.approx(8.6 / 64 + 3)
    assert found.core_seconds == pytest.approx(8.6 + 64 * 3)
    assert found.down == pytest.approx(4 * 1e7 * 10)  # 400 MB
    assert found.network == pytest.approx(1e5 * (4e8 + 4 * 900))  # 18 items and 72 negatives, d = 10
    assert found.dollars == pytest.approx(64 * (8.6 / 64 + server) / 3600 * 0.1 + 1e5 * 0.4 * 0.01)
    assert found.memory == pytest.approx(3e8 + 40 * 1e8 + (300 * 1e8 + 20 * 1e5 * 18 * 10) / 64, rel=1e-4)
    assert found.test_core_hours == pytest.approx(1e8 * (4e-9 * 1e7 + 1e-4) / 3600)
    assert found.obstacles == ("a client downloads 400 MB in a round, the limit is 50 MB",)


def test_a_rank_holds_the_table_even_if_the_points_do_not_show_it():
    model = fit(made.some())
    flat = replace(model, costs={**model.costs, "memory": {"fixed": 3e8}})
    size = Size(1e8, 1e7, 1e5, ranks=64, embedding_size=10)
    assert forecast(flat, size, Prices(), Limits()).memory == 16 * 1e8
    assert forecast(flat, replace(size, items=1e5), Prices(), Limits()).memory == 3e8


def test_more_memory_than_comes_with_the_cores_is_paid_for():
    model = fit(made.some())
    size = Size(1e8, 1e7, 1e5, rounds=1, ranks=64, embedding_size=10)
    cheap, dear = (
        forecast(model, size, Prices(core_hour=1, gb_per_core=each, gb_out=0), Limits()) for each in (8, 1)
    )
    assert cheap.memory / 1e9 == pytest.approx(4.774, rel=1e-3)  # less than 8 GB, more than 1 GB
    assert dear.dollars / cheap.dollars == pytest.approx(4.774, rel=1e-3)


def test_parts_add_up_to_the_measured_wall_time():
    for record in made.some():
        size = Size.of(record)
        whole = of_run(measured(record), size, record.tested + record.validated)
        assert whole["seconds in all"] == pytest.approx(record.seconds.wall)


def test_the_largest_point_is_predicted_from_smaller_ones():
    draw = np.random.default_rng(0)
    records = made.some(noise=lambda: float(draw.uniform(0.98, 1.02)))
    found = check(records)
    assert found is not None
    assert found.record.point.users == 10**6
    assert found.points == 5
    assert found.predicted["seconds of a round"] == pytest.approx(
        found.measured["seconds of a round"], rel=0.05
    )
    assert found.predicted["bytes down"] == pytest.approx(found.measured["bytes down"])
    # What the model says of it with the point in its fit is something else.
    assert found.predicted != of_run(
        fit(records).figures(Size.of(found.record)), Size.of(found.record), found.record.tested + 4000
    )


def test_too_few_points_cannot_be_checked():
    assert check(made.some()[:2]) is None
    assert check([made.record(10**5, 10**5, ranks, 1) for ranks in (1, 2, 3)]) is None


@given(
    costs=st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=2),
    sizes=st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=2, max_size=6),
)
def test_coefficients_are_never_negative_and_fit_no_worse_than_the_first_term(costs, sizes):
    terms = [{"a": a, "b": b} for a, b in sizes]
    wanted = [costs[0] * a + costs[1] * b for a, b in sizes]
    found = coefficients(terms, wanted)
    assert found["a"] >= 0
    assert all(cost >= 0 for cost in found.values())
    errors = [
        sum(cost * each[name] for name, cost in found.items()) / target - 1
        for each, target in zip(terms, wanted, strict=True)
    ]
    ratio = np.array([each["a"] / target for each, target in zip(terms, wanted, strict=True)])
    alone = ratio.sum() / (ratio @ ratio)
    assert np.square(errors).sum() <= np.square(alone * ratio - 1).sum() * (1 + 1e-6) + 1e-12


def test_noise_gets_no_term():
    """A term that only follows noise would be far off at a hundred times the size."""
    draw = np.random.default_rng(1)
    sizes = [(1e4, 1e5), (1e5, 1e4), (1e5, 1e5), (1e5, 1e5), (1e5, 1e5), (1e6, 1e5)]
    terms = [{"users": users, "items": items} for users, items in sizes]
    found = coefficients(terms, [3 * users * draw.uniform(0.97, 1.03) for users, _ in sizes])
    assert found == pytest.approx({"users": 3.0}, rel=0.03)


def test_what_a_definition_alone_says():
    size = Size(1e8, 1e7, 1e5, embedding_size=16)
    whole = by_formula("fedmf", size, Limits())
    assert whole.down == 4 * 16 * 1e7
    assert whole.obstacles == ("a client downloads 640 MB in a round: the whole table",)
    pairs = by_formula("fedease", size, Limits())
    assert pairs.server == 8 * 3 * 1e14  # the sums, the solution, and as much again while it is solved
    assert "pairs of items" in pairs.obstacles[0]
    tables = by_formula("fedem", size, Limits())
    assert tables.server > 4 * 16 * 1e7 * 1e8
    assert any("a table for every user" in each for each in tables.obstacles)
    assert by_formula("local", size, Limits()).obstacles == (
        "nothing is shared, so clients learn nothing from each other",
    )
    assert by_formula("fedmf", Size(1e6, 1e5, 1e4), Limits()).obstacles == ()


def test_unknown_prices_are_refused():
    assert parse(Prices, {"gb_out": "0.02"}).gb_out == 0.02
    with pytest.raises(ConfigError, match="core_second"):
        parse(Prices, {"core_second": "1"})
    with pytest.raises(ConfigError, match="must be a number"):
        parse(Limits, {"memory_gb": "many"})


def test_the_command_predicts_and_checks(tmp_path, capsys):
    for record in made.some():
        Store(tmp_path / "scale", ScaleRecord).add(record)
    bench_scale.predict(records=tmp_path / "scale", limit=["download_mb=1000"], json=True)
    (found,) = json.loads(capsys.readouterr().out)["predicted"]
    assert found["points"] == 6
    assert found["down"] == pytest.approx(4e8)
    assert found["obstacles"] == []
    bench_scale.predict(records=tmp_path / "scale", price=["gb_out=0.02"])
    assert "a client downloads 400 MB in a round" in capsys.readouterr().out
    bench_scale.predict(records=tmp_path / "scale", check=True, json=True)
    checks = json.loads(capsys.readouterr().out)
    assert {each["point"] for each in checks} == {"fedmf-u1e6-i1e5-r1x2"}
    for each in checks:
        assert each["predicted"] == pytest.approx(each["measured"], rel=1e-3)


def test_the_command_needs_records(tmp_path):
    with pytest.raises(RunError, match="no records"):
        bench_scale.predict(records=tmp_path / "scale")
    Store(tmp_path / "scale", ScaleRecord).add(made.record(10**5, 10**5))
    with pytest.raises(RunError, match="no method has three points"):
        bench_scale.predict(records=tmp_path / "scale", check=True)
