"""FedFast as published: who is drawn, how rows are weighted, and what users without training take over."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from solera.core.errors import DeviceError
from solera.core.upload import Totals, Upload
from solera.engine.block import BlockTraining
from solera.engine.reference import train_one_by_one
from solera.federation.node.work import deployable
from solera.methods import build
from solera.methods.fedfast import ActiveAggregation
from solera.testing.toy import CPU, Watched, difference, run, state

METHOD = build("fedfast", {"users": "sent", "embedding_size": 2, "clusters": 2, "subordinate_rate": 0.5})
CONTEXT = METHOD.context(0, 10)
# Clients 0, 1 and 4 are of one mind, and so are 2 and 3.
USERS = torch.tensor([[0.0, 0.0], [0.1, 0.0], [10.0, 0.0], [10.0, 0.2], [0.0, 0.1]], dtype=torch.float64)


def test_subordinates_take_half_of_their_clusters_change():
    """Delegates 0, 4 and 2 move by (1, 0), (0, 1) and (−2, 0); γ = 1/2.

    Client 1 takes half of the mean of (1, 0) and (0, 1), client 3 half of (−2, 0).
    """
    changes = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    found = ActiveAggregation(2).pass_on(USERS, torch.tensor([0, 2, 4]), changes, CONTEXT)
    expected = [[1, 0], [0.35, 0.25], [8, 0], [9, 0.2], [0, 1.1]]
    assert found.numpy() == pytest.approx(np.array(expected))


def test_clusters_without_delegates_stay():
    changes = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    found = ActiveAggregation(2).pass_on(USERS, torch.tensor([0]), changes, CONTEXT)
    assert torch.equal(found[2:4], USERS[2:4])
    assert float(found[1, 0]) == pytest.approx(0.6)


def test_rows_by_how_far_they_moved():
    """Row 3: (1, 1) moved by 2 and (−3, 0) by 3: (2 · (1, 1) + 3 · (−3, 0)) / 5. Row 7: one client alone."""
    upload = Upload(
        torch.tensor([3, 7, 3]),
        torch.tensor([2, 1]),
        {
            "items": torch.tensor([[1.0, 1.0], [4.0, 0.0], [-3.0, 0.0]], dtype=torch.float64),
            "user": torch.zeros(2, 2, dtype=torch.float64),
        },
    )
    totals = Totals(METHOD.leaves, 10, CPU)
    aggregate = ActiveAggregation(2)
    aggregate.sift(upload, None, totals)
    shared = {"items": torch.ones(10, 2, dtype=torch.float64)}
    after = aggregate.combine(shared, totals, CONTEXT)["items"]
    assert after[3].tolist() == pytest.approx([1 - 7 / 5, 1 + 2 / 5])
    assert after[7].tolist() == pytest.approx([5, 1])
    assert torch.equal(after[:3], shared["items"][:3])


@pytest.mark.parametrize(("count", "of_the_smaller"), [(2, 1), (4, 2), (5, 2)])
def test_equally_many_of_every_cluster(count, of_the_smaller):
    drawn = ActiveAggregation(2).draw(USERS, count, CONTEXT).tolist()
    assert drawn == sorted(set(drawn))
    assert len(drawn) == count
    assert len({2, 3} & set(drawn)) == of_the_smaller


def test_engines_agree_when_some_clients_are_drawn():
    options = {
        "users": "sent",
        "embedding_size": 4,
        "clusters": 3,
        "clients_per_round": 0.4,
        "local_epochs": 2,
    }
    watched = Watched(BlockTraining(1, 300))
    block = run(build("fedfast", options), watched, rounds=3)
    reference = run(build("fedfast", options), train_one_by_one, rounds=3)
    assert difference(state(block), state(reference)) <= 1e-10
    assert sum(len(result.clients) for result in watched.results) == 3 * 8


def test_published_form_sends_user_vectors_and_the_other_does_not():
    sent = {leaf.name for leaf in METHOD.leaves if leaf.sent_as}
    assert sent == {"user", "items"}
    assert {leaf.name for leaf in build("fedfast").leaves if leaf.sent_as} == {"items"}


def test_a_federation_of_devices_refuses_it():
    with pytest.raises(DeviceError, match="draws nodes"):
        deployable(METHOD)
