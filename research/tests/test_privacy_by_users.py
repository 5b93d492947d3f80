"""The table of what privacy costs by users, and the sums that the experiment adds up at once."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from programs import program
from solera.data.ragged import Ragged


@pytest.fixture
def size(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")
    return importlib.import_module("privacy_size")


def point(users: int, epsilon: float | None, hr: float) -> dict:
    test = {"hr@10": hr, "ndcg@10": hr / 2}
    return {"data": f"{users:g}", "users": users, "items": 1000, "epsilon": epsilon, "test": test}


def test_a_row_per_size_with_the_loss_against_no_privacy() -> None:
    blocks = program("docs/make_pages")
    points = [point(200, epsilon, 0.2) for epsilon in (None, 8.0)]
    points += [point(9000, *each) for each in ((None, 0.4), (8.0, 0.3), (4.0, 0.2), (1.0, 0.42))]
    rows = blocks.privacy_by_users(points, "synthetic").splitlines()
    assert rows[2:] == [  # a size without all ε is left out
        "| 9,000 | 1,000 | 0.4000 / 0.2000 | 0.3000 / 0.1500 (−25%) | 0.2000 / 0.1000 (−50%)"
        " | 0.4200 / 0.2100 (+5%) |",
    ]
    assert "no records" in blocks.privacy_by_users(points, "ml-1m")


@pytest.mark.parametrize("clip", [1.5, 1e9])
def test_sums_over_all_clients_are_those_of_the_method(size, monkeypatch, clip: float) -> None:
    """`check` compares them; it must fail for wrong ones."""
    train = Ragged.from_lists([[0, 1, 2, 3, 4, 5], [3], [4, 2], [5, 0, 3]])
    none = np.zeros(0, np.int64)
    data = size.Data("x", 6, train, none, (train, train), (none, none))
    setting = size.Setting(0.6, clip, 1.0, 0.0, 0.0)
    size.check(data, setting)
    honest = size.totals
    longer = lambda *given: {name: 1.01 * each for name, each in honest(*given).items()}  # noqa: E731
    monkeypatch.setattr(size, "totals", longer)
    with pytest.raises(AssertionError):
        size.check(data, setting)


def test_ranks_and_their_figures_by_hand(size) -> None:
    """Item 1 follows 0, item 2 follows 1. Own items are no candidates, and ties count half."""
    known = Ragged.from_lists([[0], [1]])
    wanted = np.array([1, 3])
    data = size.Data("x", 4, known, np.arange(2), (known, known), (wanted, wanted))
    weights = torch.tensor([[9, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.float32)
    assert size.ranks(data, 0, weights, 0.6).tolist() == [1.0, 2.5]
    assert size.figures(np.array([1.0, 3.0, 11.0, 40.0])) == {"hr@10": 0.5, "ndcg@10": 0.375}
