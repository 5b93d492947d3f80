"""What a device's ledger says of the privacy that is gone."""

from __future__ import annotations

import math

import pytest

from solera.device.ledger import Entry, Ledger, Stage
from solera.device.policy import Spent

HERE, THERE = "a" * 32, "b" * 32


def upload(ledger: Ledger, federation: str, round_: int, noise: float | None) -> None:
    context = f"{federation} {round_}"
    assert ledger.begin(Entry(context, federation, round_, 0, "", {}, 1.0, noise, "", b"secret"))
    ledger.advance(context, Stage.UPLOADED, None)


def test_costs_add_up(device):
    ledger = Ledger(device.store)
    for round_, noise in enumerate((2.0, 2.0, 1.0)):
        upload(ledger, HERE, round_, noise)
    upload(ledger, THERE, 0, 0.5)
    assert ledger.spent(HERE) == Spent(1.5, 5.5)
    assert ledger.spent("c" * 32) == Spent(0.0, 5.5)


@pytest.mark.parametrize("noise", [None, 1e-200, 5e-324])
def test_next_to_no_noise_counts_as_none(device, noise):
    """Also among uploads with noise: a square that is zero once vanished from the sum."""
    ledger = Ledger(device.store)
    upload(ledger, HERE, 0, 1.0)
    upload(ledger, HERE, 1, noise)
    assert ledger.spent(HERE) == Spent(math.inf, math.inf)
    assert Spent().after(noise) == Spent(math.inf, math.inf)
