"""Over messages, in three places, with everything on disk in between: the same as the block engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from closed_forms import closed_form
from one_process import ITEMS
from solera.core.closed_form import WEIGHTS, ClosedForm
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import OneRound
from solera.methods import find, names

TRAINED = [name for name in names() if not isinstance(find(name), ClosedForm)]
SMALL = {"embedding_size": 4}


@pytest.mark.parametrize("method", TRAINED)
def test_server_and_users_are_as_in_the_block_engine(local, method):
    options = SMALL | (
        {"layers": 1, "dropout": 0} if method == "fedsasrec" else {}
    )  # no user's gradient meets the bound
    federation = local(method, options, over_selection=1.0)
    federation.run()
    differences = federation.differences(federation.simulated())
    assert differences
    assert max(differences.values()) < 1e-9, differences


@pytest.mark.parametrize("method", ["fedmf", "fedrecon"])
@pytest.mark.parametrize("defence", ["row-cap", "trimmed-mean", "multi-krum"])
def test_defences_look_at_every_user_by_itself(local, method, defence):
    federation = local(f"{method}+robust", SMALL | {"robust": defence}, over_selection=1.0)
    federation.run()
    assert max(federation.differences(federation.simulated()).values()) < 1e-9


def test_a_share_of_the_clients(local):
    federation = local("fedmf", SMALL | {"clients_per_round": 0.4}, over_selection=1.0)
    federation.run()
    assert max(federation.differences(federation.simulated()).values()) < 1e-9


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedease", {}),
        ("fedease", {"sketch": 6}),
        ("fedslist", {}),
        ("fedslist", {"decay_days": 2 / 86_400}),  # devices here got their items a second apart
    ],
)
def test_methods_of_one_round(local, histories, method, options):
    federation = local(method, options)
    federation.round()
    federation.finish()
    lists = Ragged.from_lists(histories)
    known = replace(lists, days=np.concatenate([np.arange(len(each)) for each in histories]) / 86_400)
    alone = OneRound(
        closed_form(method, options),
        ClientData(known, known, ITEMS),
        device=torch.device("cpu"),
        dtype=torch.float64,
    )
    alone.run_round(0)
    weights = alone.state.shared[WEIGHTS]
    assert torch.allclose(federation.coordinator.state.shared[WEIGHTS], weights, atol=1e-9)
    scores = alone.serve(known)(np.array([0]))[0]
    shown = federation.devices[100].recommend(3, user="u0")
    unknown = [item for item in range(ITEMS) if item not in histories[0]]
    best = sorted(unknown, key=lambda item: -float(scores[item]))[:3]
    assert [each.item for each in shown] == [str(item) for item in best]
