"""From reports to a model: what the server solves is what `least_clients` simulates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from closed_forms import closed_form
from solera.core.closed_form import NEIGHBOURS, WEIGHTS
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import OneRound
from solera.federation.reports.solving import totals
from solera.privacy.reports.measurements import measurements
from threshold_reports import Federation

ITEMS, LEAST, NEWEST = 7, 2, 4
OPTIONS = {
    "fedease": {"reg": 2.0},
    "fedslist": {"compact": True, "decays": (0.7,), "horizon": 1},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_model_from_opened_counts(name):
    draw = np.random.default_rng(4)
    histories = [draw.permutation(ITEMS)[: draw.integers(2, NEWEST + 1)].tolist() for _ in range(16)]
    federation = Federation(LEAST, reports=NEWEST * (NEWEST + 1) // 2)
    for device, history in enumerate(histories):
        candidates = measurements(history, NEWEST, ordered=name == "fedslist")
        federation.send(0, str(device), candidates)
    federation.end(0)

    options = {"neighbours": ITEMS, "newest": NEWEST, "least_clients": LEAST} | OPTIONS[name]
    method, known = closed_form(name, options), Ragged.from_lists(histories)
    data = ClientData(known, known, ITEMS)
    simulated = OneRound(method, data, device=torch.device("cpu"), dtype=torch.float64)
    simulated.run_round(0)
    found = totals(method, federation.server.counts("films"), ITEMS)
    ids, weights = method.aggregate.solve_sparse(found)
    assert ids.tolist() == simulated.state.shared[NEIGHBOURS].tolist()
    assert torch.allclose(weights, simulated.state.shared[WEIGHTS], rtol=0, atol=1e-9)
    assert weights.abs().max() > 0
