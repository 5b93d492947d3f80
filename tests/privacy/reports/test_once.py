"""Every pair goes once: the sum over nights is what one night of the whole history would have been."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.math.linear import without_diagonal
from solera.privacy.reports.measurements import (
    ITEM,
    ORDERED,
    PAIR,
    Ledger,
    Measurement,
    counted,
    measurements,
)

ITEMS = 12


class Device:
    def __init__(self) -> None:
        self.history: list[int] = []
        self.ledger = Ledger(sqlite3.connect(":memory:"), "films")

    def night(self, epoch: int, *, newest: int = ITEMS, limit: int = 1000, ordered: bool = False):
        taken = self.ledger.take(epoch, measurements(self.history, newest, ordered=ordered), limit)
        self.ledger.went(epoch)
        return taken


def gram(counts: dict[Measurement, int]) -> np.ndarray:
    found = np.zeros((ITEMS, ITEMS))
    for each, count in counts.items():
        found[each.first, each.second] = found[each.second, each.first] = count
    return found


def ease(gram_: np.ndarray) -> torch.Tensor:
    return without_diagonal(torch.from_numpy(gram_.copy()), 3.0)


# What happens on a night: an item comes to a device (or comes again), or it is away.
nights = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, ITEMS - 1), st.booleans()), max_size=12), max_size=8
)


@given(nights, st.integers(1, 9))
def test_the_model_of_all_nights_is_the_model_of_all_histories(happened, limit):
    """New items in any order, nights without some devices, and messages that are too small for all of it."""
    devices = [Device() for _ in range(5)]
    total: Counter[Measurement] = Counter()
    for epoch, night in enumerate(happened):
        away = {device for device, _, there in night if not there}
        for device, item, _ in night:
            devices[device].history.append(item)
        total.update(
            counted(each.night(epoch, limit=limit) for n, each in enumerate(devices) if n not in away)
        )
    for epoch in range(100, 200):  # what had no room goes later
        total.update(counted(each.night(epoch, limit=limit) for each in devices))
    x = np.zeros((5, ITEMS))
    for row, each in zip(x, devices, strict=True):
        row[each.history] = 1
    assert gram(total).tolist() == (x.T @ x).tolist()
    assert torch.allclose(ease(gram(total)), ease(x.T @ x), rtol=0, atol=1e-9)


@given(st.lists(st.tuples(st.integers(0, ITEMS - 1), st.booleans()), max_size=40), st.integers(1, 6))
def test_nothing_goes_twice_and_two_nights_have_nothing_in_common(steps, newest):
    """Not after a deletion, either, nor when the item comes back in another place."""
    device, seen = Device(), []
    for epoch, (item, there) in enumerate(steps):
        if there:
            device.history.append(item)
        elif item in device.history:
            device.history = [each for each in device.history if each != item]
            device.ledger.forget(item)
        seen += [each.identity for each in device.night(epoch, newest=newest, ordered=True)]
    assert len(seen) == len(set(seen))


def test_a_control_without_ledger_counts_twice():
    both = [list(measurements([1, 2], 5))] * 2
    assert counted(both) != counted(both[:1])


def test_an_absent_night_is_made_up_for():
    device = Device()
    device.history = [3, 1]
    device.ledger.take(0, measurements(device.history, 5), 9)  # prepared, and the helper was not reached
    device.history.append(2)
    assert len(device.night(1)) == 3 + 3
    assert device.night(2) == []


def test_a_night_that_was_handed_over_never_goes_again():
    device = Device()
    device.history = [3, 1]
    first = device.night(0)
    assert sorted(device.night(0)) == sorted(first)  # the same night again: the same message
    assert device.night(1) == []


def test_the_newest_pairs_go_first():
    """By hand: of 5, 6, 7, 8 the newest two items, then what the third newest adds."""
    found = list(measurements([5, 6, 7, 8], 3))
    assert found[:3] == [Measurement(ITEM, 8, 8), Measurement(ITEM, 7, 7), Measurement(PAIR, 7, 8)]
    assert found[3:6] == [Measurement(ITEM, 6, 6), Measurement(PAIR, 6, 7), Measurement(PAIR, 6, 8)]
    assert found[6:] == [Measurement(ITEM, 5, 5), Measurement(PAIR, 5, 6), Measurement(PAIR, 5, 7)]


def test_ordered_pairs_say_how_far_apart():
    """Lags 1, 2, 3, 4, 5 are of the classes 0, 1, 2, 2, 3; a repeated item stands where it came first."""
    found = {
        each.second: each.lag
        for each in measurements([9, 1, 2, 9, 3, 4, 5], 9, ordered=True)
        if each.first == 9
    }
    assert found == {9: 0, 1: 0, 2: 1, 3: 2, 4: 2, 5: 3}


def test_a_deleted_item_is_in_no_column_of_the_ledger():
    device = Device()
    device.history = [3, 1]
    device.night(0)
    assert (0, Measurement(PAIR, 1, 3)) in device.ledger.gone()
    device.ledger.forget(3)
    assert sorted(device.ledger.gone(), key=str) == sorted(
        [(0, None), (0, None), (0, Measurement(ITEM, 1, 1))], key=str
    )


@given(st.builds(Measurement, st.integers(0, 2), st.integers(0, 9), st.integers(0, 9), st.integers(0, 2)))
def test_ten_bytes_and_back(measurement):
    try:
        assert Measurement.decoded(measurement.encoded()) == measurement
    except ValueError:
        canonical = {
            ITEM: measurement.first == measurement.second and not measurement.lag,
            PAIR: measurement.first < measurement.second and not measurement.lag,
            ORDERED: measurement.first != measurement.second,
        }
        assert not canonical[measurement.kind]


@pytest.mark.parametrize("wrong", [b"", bytes(9), bytes(11), b"\3" + bytes(9), b"\xff" * 10])
def test_other_bytes_are_refused(wrong):
    with pytest.raises(ValueError):
        Measurement.decoded(wrong)


@pytest.mark.parametrize(
    ("module", "absent"), [("measurements", "torch numpy rbcl"), ("reporter", "torch polars")]
)
def test_a_device_needs_little_besides_python(module, absent):
    loaded = f"any(name in sys.modules for name in {absent.split()})"
    code = f"import sys, solera.privacy.reports.{module}; sys.exit({loaded})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
