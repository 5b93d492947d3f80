"""FedEASE from sketches, against hand-made sums and against FedEASE itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from closed_forms import closed_form
from solera.core.closed_form import WEIGHTS
from solera.core.errors import ConfigError
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.dp.settings import check_private
from solera.engine import OneRound
from solera.math.sketch import of_items, signs
from solera.methods import find

HISTORIES = [[0, 2, 5], [1, 2], [5, 3, 0, 1], [4]]
ITEMS = 6


def solved(**options) -> torch.Tensor:
    known = Ragged.from_lists(HISTORIES)
    method = closed_form("fedease", {"reg": 1.5} | options)
    made = OneRound(method, ClientData(known, known, ITEMS), device=torch.device("cpu"), dtype=torch.float64)
    made.run_round(0)
    return made.state.shared[WEIGHTS]


def test_what_a_client_sends_by_hand():
    """Of items 1 and 4, in whatever order and however often: at both rows the sum of Ω's rows 1 and 4."""
    part = find("fedease", {"sketch": 3}).update.of(np.array([4, 1, 4]))
    rows = signs(8, 3, seed=0)
    assert part.items.tolist() == [1, 4]
    assert part.blocks["sketch"].shape == (1, 2, 1, 3)
    for place in (0, 1):
        assert part.blocks["sketch"][0, place, 0].tolist() == (rows[1] + rows[4]).tolist()


@pytest.mark.parametrize("size", [1, 3, 25])
def test_items_have_the_same_rows_in_a_larger_catalogue(size):
    few, many = np.arange(5), np.arange(700)
    assert np.array_equal(of_items(few, size), of_items(many, size)[:5])
    assert np.array_equal(of_items(np.array([3, 699]), size), of_items(many, size)[[3, 699]])
    assert set(np.unique(of_items(many, size))) == {-1, 1}


def test_a_sketch_as_wide_as_the_rank_tells_everything():
    """Four histories: the sum is of rank 4."""
    assert torch.allclose(solved(sketch=5), solved(), atol=1e-8)
    assert not torch.allclose(solved(sketch=2), solved(), atol=1e-2)


def test_no_sketch_under_noise():
    with pytest.raises(ConfigError, match="cannot send a sketch under differential privacy"):
        check_private(find("fedease", {"sketch": 5}))
    check_private(find("fedease"))
