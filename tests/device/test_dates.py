"""A device whose model fades by days knows when its items were met, and when it is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import SoleraError
from solera.device.bundle import Bundle
from solera.device.catalogue import natural
from solera.device.dates import DAY, days_of
from solera.device.device import Device
from solera.device.models.opened import open_model
from solera.device.publish import export
from solera.runs import Run, RunConfig, train

START = 900_000_000


@pytest.fixture(scope="module")
def dated(data):
    """The data set with dates, a few hours to a few days apart."""
    return replace(data, times=START + np.arange(len(data)) * 20_000)


@pytest.fixture(scope="module")
def bundle(dated, keys, tmp_path_factory):
    """The bundle of a run with the given options."""

    def make(**options) -> tuple[Run, Bundle]:
        folder = tmp_path_factory.mktemp("dated")
        config = RunConfig(method="fedslist", dataset="small", rounds=1, options=options)
        run = train(config, dated, out=folder / "run", threads=1)
        export(folder / "run", folder / "b.bundle", Path(f"{keys}.key"), data=dated, whole=True)
        return run, Bundle.open(folder / "b.bundle")

    return make


def filled(place: Path, bundle: Bundle, dated, user: str) -> Device:
    device, row = Device.create(place, bundle), dated.user_map.index(user)
    times = dated.times[dated.by_user.offsets[row] :]
    for item, time in zip(dated.by_user.row(row).tolist(), times.tolist(), strict=False):
        device.add(dated.item_map.id(item), time=time, user=user)
    return device


def test_it_recommends_what_the_simulator_does(bundle, dated, tmp_path):
    run, made = bundle(decays="0.5,0.9", decay_days=1.0)
    device = filled(tmp_path / "d", made, dated, "u7")
    shown, expected = device.recommend(12, user="u7"), run.recommend("u7", 12)
    assert [each[:3] for each in shown] == [(each.rank, each.item, natural(each.title)) for each in expected]
    assert [each.score for each in shown] == pytest.approx([each.score for each in expected], rel=1e-6)


def test_it_tells_the_model_when_it_is_asked(bundle, dated, tmp_path, monkeypatch):
    _, made = bundle(decays="0.5,0.9", decay_days=1.0, until_next=True)
    device, model = filled(tmp_path / "d", made, dated, "u7"), open_model(made)
    times = device.times("u7")
    rows = np.array([device.catalogue.number[item] for item in times])
    now = max(time or 0 for time in times.values()) + 3 * DAY
    monkeypatch.setattr("solera.device.device.clock.time", lambda: now)
    days = days_of(list(times.values()))
    expected = model.scores(rows, days, now / DAY)
    assert not np.allclose(expected, model.scores(rows, days))
    best = device.recommend(5, user="u7", reasons=2)
    assert [each.score for each in best] == [
        pytest.approx(float(expected[device.catalogue.number[each.item]])) for each in best
    ]
    total = sum(reason.part for reason in best[0].reasons) + best[0].others
    assert total == pytest.approx(best[0].score, rel=1e-5)


def test_a_history_without_any_time_is_refused(bundle, tmp_path):
    _, made = bundle(decays="0.5", decay_days=1.0)
    device = Device.create(tmp_path / "d", made)
    device.add_all([("3", None), ("5", None)], "me", "test")
    with pytest.raises(SoleraError, match="needs the dates"):
        device.recommend(3)
    device.add("7", time=START)
    assert device.recommend(3)  # the others are taken to be as old


def test_days_of_a_history():
    assert days_of([None, None]) is None
    assert days_of([None, DAY, 3 * DAY]).tolist() == [1, 1, 3]
