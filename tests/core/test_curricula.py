"""FedRAP's curricula (Sections 4.3 and 4.5 of the paper), a being the round counted from 1."""

from __future__ import annotations

from math import sin, tanh

import pytest

from solera.methods import build


@pytest.mark.parametrize(
    ("curriculum", "expected"),
    [
        ("tanh", {1: tanh(0.1), 10: tanh(1), 100: tanh(10)}),
        ("sin", {1: sin(0.1), 10: sin(1), 100: sin(10)}),
        ("square", {1: 0, 9: 0, 10: 1, 19: 1, 20: 0, 30: 1}),
        ("frac", {1: 1 / 2, 9: 1 / 10}),
        ("fixed", {1: 1, 100: 1}),
    ],
)
def test_both_weights_follow_the_curriculum(curriculum, expected):
    method = build("fedrap", {"curriculum": curriculum, "independence": 0.2, "sparsity": 0.5})
    for a, share in expected.items():
        hyper = method.context(a - 1, n_items=10).hyper
        assert hyper["independence"] == pytest.approx(0.2 * share)
        assert hyper["sparsity"] == pytest.approx(0.5 * share)
