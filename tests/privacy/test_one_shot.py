"""One message from every device, and one sum for the server."""

from __future__ import annotations

import os
import sqlite3

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solera.privacy.one_shot import MaskHelper, OneShotError, VectorTerms, masked_vector, opened_sum

TERMS = VectorTerms("films", 3, 50, 3)


class Round:
    def __init__(self, terms: VectorTerms, devices: int, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.terms, self.helper = terms, MaskHelper(sqlite3.connect(":memory:"))
        self.values = {
            f"d{n}": draw.integers(0, 2**terms.bits, terms.length, dtype=f"u{terms.bits // 8}")
            for n in range(devices)
        }
        self.sent: dict[str, bytes] = {}
        for device, values in self.values.items():
            seed_ = os.urandom(32)
            self.sent[device] = masked_vector(terms, values, seed_)
            self.helper.accept(terms, device, seed_)

    def sum(self, devices) -> np.ndarray:
        masks = self.helper.masks(self.terms, devices)
        return opened_sum(self.terms, [self.sent[each] for each in devices], masks)


@given(st.integers(3, 8), st.sampled_from([32, 64]), st.integers(1, 40), st.data())
def test_the_sum_is_that_of_the_devices_that_were_named(count, bits, length, data):
    made = Round(VectorTerms("films", 1, length, 3, bits), count, seed=count)
    named = data.draw(st.lists(st.sampled_from(sorted(made.values)), unique=True, min_size=3))
    expected = sum(made.values[each] for each in named)
    assert made.sum(named).tolist() == expected.tolist()
    assert made.sum(named[::-1]).tolist() == expected.tolist()  # asked again


def test_a_second_sum_of_one_round_is_refused():
    """Two sums that differ by one device would tell its vector: the control computes it."""
    made, control = Round(TERMS, 4), Round(TERMS, 4)
    made.sum(["d0", "d1", "d2", "d3"])
    with pytest.raises(OneShotError, match="masks of other devices were told"):
        made.sum(["d0", "d1", "d2"])
    with pytest.raises(OneShotError, match="round 3 is over"):
        made.helper.accept(TERMS, "d4", bytes(32))
    assert made.helper.devices(TERMS) == []
    whole = control.sum(["d0", "d1", "d2", "d3"])
    with control.helper._database as database:
        database.execute("DELETE FROM told")
    for device, values in control.values.items():  # seeds that were not deleted
        seed = os.urandom(32)
        control.sent[device] = masked_vector(TERMS, values, seed)
        control.helper.accept(TERMS, device, seed)
    assert (whole - control.sum(["d0", "d1", "d2"])).tolist() == control.values["d3"].tolist()


@pytest.mark.parametrize("named", [["d0"], ["d0", "d1"], ["d0", "d0", "d1"], ["d0", "d0", "d1", "d2"]])
def test_a_sum_of_few_is_refused(named):
    made = Round(TERMS, 4)
    with pytest.raises(OneShotError, match="at least 3 devices, each of them once"):
        made.sum(named)
    made.sum(["d0", "d1", "d2"])  # nothing was lost by asking


def test_a_device_without_a_seed_is_in_no_sum():
    made = Round(TERMS, 4)
    made.sent["late"] = bytes(200)
    with pytest.raises(OneShotError, match="seeds of 1 devices have not come"):
        made.sum([*made.values, "late"])


def test_the_first_seed_counts_and_other_terms_have_other_masks():
    made = Round(TERMS, 3)
    made.helper.accept(TERMS, "d0", bytes(32))
    expected = sum(made.values.values())
    assert made.sum(list(made.values)).tolist() == expected.tolist()
    other = VectorTerms("films", 4, 50, 3)
    zeros = np.zeros(50, np.uint32)
    assert masked_vector(TERMS, zeros, bytes(32)) != masked_vector(other, zeros, bytes(32))


def test_a_masked_vector_looks_like_any_other():
    """Means of bits over many masks of equal vectors; the control has no mask."""
    zeros = np.zeros(50, np.uint32)
    bits = [
        np.unpackbits(np.frombuffer(masked_vector(TERMS, zeros, os.urandom(32)), np.uint8))
        for _ in range(400)
    ]
    assert np.abs(np.mean(bits, 0) - 0.5).max() < 0.15
    assert np.unpackbits(zeros.view(np.uint8)).max() == 0


@pytest.mark.parametrize("wrong", [{"least_devices": 1}, {"bits": 16}])
def test_terms_without_protection_are_refused(wrong):
    with pytest.raises(OneShotError):
        VectorTerms(**({"federation": "films", "round": 1, "length": 5, "least_devices": 3} | wrong))
