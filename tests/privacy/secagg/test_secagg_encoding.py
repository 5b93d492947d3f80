"""Fixed-point values: exact sums, and parameters that could wrap are refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from solera.privacy.secagg import Encoding, Part, SecAggError

CLIPS = st.floats(2.0**-10, 2.0**20)


def encoding(clients: int, clip: float, fraction_bits: int, bits: Any = 32, length: int = 1) -> Encoding:
    part = Part(name="x", length=length, clip=clip, fraction_bits=fraction_bits)
    return Encoding(clients=clients, parts=(part,), bits=bits)


@given(st.integers(2, 4096), CLIPS, st.integers(0, 52), st.sampled_from([32, 64]), st.booleans())
def test_the_worst_sum_never_wraps(clients, clip, fraction_bits, bits, negative):
    """Accepted parameters survive the worst inputs; refused ones could wrap or lose digits."""
    part = Part(name="x", length=1, clip=clip, fraction_bits=fraction_bits)
    largest = round(Fraction(clip) * 2**fraction_bits)
    fits = largest >= 1 and clients * largest <= min(2 ** (bits - 1) - 1, 2**53)
    try:
        made = Encoding(clients=clients, parts=(part,), bits=bits)
    except ValidationError:
        assert not fits
        return
    assert fits
    worst = np.array([-clip if negative else clip])
    total = sum(int(made.encode({"x": worst})[0]) for _ in range(clients)) % 2**bits
    found = made.decode(np.array([total], made.dtype))["x"][0]
    assert Fraction(found) == (-1 if negative else 1) * Fraction(clients * largest, 2**fraction_bits)


def test_the_bound_is_tight():
    """n · q = 2^31 − 1 is taken; one more is not, and would wrap."""
    q = (2**31 - 1) // 2
    assert encoding(2, q, 0).clients * q <= 2**31 - 1
    with pytest.raises(ValidationError, match="could exceed"):
        encoding(2, q + 1, 0)
    assert np.array([2 * (q + 1)], np.uint32).view(np.int32)[0] < 0


@given(
    st.lists(
        st.lists(st.floats(-20, 20), min_size=3, max_size=3).map(np.array),
        min_size=2,
        max_size=10,
    ),
    st.sampled_from([32, 64]),
)
def test_sums_are_exact_to_half_an_ulp_each(inputs, bits):
    made = encoding(len(inputs), 10.0, 12, bits, length=3)
    total: Any = sum(made.encode({"x": each}) for each in inputs)
    clipped = [[Fraction(v) for v in np.clip(each, -10, 10)] for each in inputs]
    for place, found in enumerate(made.decode(total)["x"]):
        true = sum(each[place] for each in clipped)
        assert abs(Fraction(found) - true) <= Fraction(len(inputs), 2) / 2**12


def test_parts_have_their_own_range():
    parts = (
        Part(name="rows", length=4, clip=1, fraction_bits=20),
        Part(name="weight", length=1, clip=10**6, fraction_bits=0),
    )
    made = Encoding(clients=20, parts=parts)
    one = made.encode({"rows": [[0.5, -0.25], [2.0, -2.0]], "weight": [1234]})
    found = made.decode(one + one)
    assert found["rows"].tolist() == [1.0, -0.5, 2.0, -2.0]
    assert found["weight"].tolist() == [2468]
    assert made.nbytes == 20


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"x": [np.nan, 0]}, "not finite"),
        ({"x": [0, np.inf]}, "not finite"),
        ({"x": [1.0]}, "has 1 values, not 2"),
        ({"y": [1.0, 2.0]}, "not those of the parts"),
        ({}, "not those of the parts"),
    ],
)
def test_wrong_values_are_refused(values, reason):
    with pytest.raises(SecAggError, match=reason):
        encoding(2, 1, 8, length=2).encode(values)


@pytest.mark.parametrize(
    "wrong",
    [{"clip": 0}, {"clip": float("nan")}, {"clip": 1e300}, {"fraction_bits": -1}, {"length": 0}],
)
def test_wrong_parts_are_refused(wrong):
    with pytest.raises(ValidationError):
        Part(**{"name": "x", "length": 1, "clip": 1.0, "fraction_bits": 8, **wrong})


def test_a_clip_below_half_an_ulp_is_refused():
    with pytest.raises(ValidationError, match="would become 0"):
        encoding(2, 0.25, 0)
