"""The prior that items with the same attributes score alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from solera.core.content import AttributePrior, vectors_of
from solera.core.errors import ConfigError, DataError
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.evaluate import split
from solera.math.linear import without_diagonal
from solera.math.next_items import next_item_weights
from solera.methods import find
from solera.runs import RunConfig, train


def attributes(*lists):
    return Ragged(np.cumsum([0, *map(len, lists)]), np.array([v for row in lists for v in row]))


def test_vectors_by_hand():
    """Attribute 0 is of all three items and says nothing; log(3 / 2) and log 3 of the others, of length 1."""
    found = vectors_of(attributes([0, 1], [0, 1, 2], [0]))
    two, one = np.log(3 / 2), np.log(3)
    length = np.hypot(two, one)
    expected = torch.tensor([[0, 1, 0], [0, two / length, one / length], [0, 0, 0]]).double()
    torch.testing.assert_close(found, expected)


def test_targets_by_hand():
    """Items 0 and 1 share an attribute, τ = ½: each gets half of the other's weight and half of its own."""
    prior = AttributePrior(0.0, 0.5, 0, attributes([0], [0], [1], []))
    spread = prior.spread(torch.tensor([[10.0, 2.0, 4.0, 7.0]]).double(), torch.ones(4))
    torch.testing.assert_close(spread, torch.tensor([[16.0, 8.0, 6.0, 7.0]]).double())


def test_targets_are_those_of_a_regression_on_shared_targets():
    """Spreading B is the same as spreading what is predicted."""
    torch.manual_seed(0)
    known, x, y = attributes([0, 1], [0], [1, 2], [2]), torch.rand(9, 4).double(), torch.rand(9, 4).double()
    prior, vectors = AttributePrior(0.0, 0.3, 0, known), vectors_of(known)
    shared = y + 0.3 * y @ vectors @ vectors.T
    found = next_item_weights(x.T @ x, x.T @ y, 0.5, 0.0, prior)
    torch.testing.assert_close(found, next_item_weights(x.T @ x, x.T @ shared, 0.5, 0.0, AttributePrior()))


def test_cold_items_by_hand():
    """Item 3 is like items 0 and 1 and has no count; of the two the one with more counts is its neighbour."""
    known, weights = attributes([0], [0], [1], [0], []), torch.tensor([[4.0, 8.0, 1.0, 0.0, 0.0]]).double()
    counts = torch.tensor([1.0, 5.0, 3.0, 0.0, 0.0])
    for most, expected in ((1, 8.0), (2, 6.0), (4, 6.0)):
        found = AttributePrior(0.0, 0.0, most, known).spread(weights.clone(), counts)
        torch.testing.assert_close(found, torch.tensor([[4.0, 8.0, 1.0, expected, 0.0]]).double())


def test_no_weight_is_no_prior():
    weights = torch.rand(3, 3).double()
    prior = AttributePrior(0.0, 0.0, 0, attributes([0], [0], [1]))
    assert prior.spread(weights, torch.tensor([1.0, 0.0, 0.0])) is weights
    assert prior.ridge(weights) is None


def dense_ridge(known, rho):
    vectors = vectors_of(known)
    return torch.linalg.inv(torch.eye(len(vectors)).double() + rho * vectors @ vectors.T)


@pytest.mark.parametrize("channels", [1, 2])
def test_the_penalty_of_sources_is_the_inverse_covariance(channels):
    known = attributes([0, 1], [0], [1, 2], [2], [])
    system = torch.zeros(5 * channels, 5 * channels).double()
    AttributePrior(2.0, 0.0, 0, known).ridge(system).add_to(system, 3.0)
    expected = 3.0 * torch.block_diag(*[dense_ridge(known, 2.0)] * channels)
    torch.testing.assert_close(system, expected)


def test_ease_with_attributes_is_a_regression_without_the_item_itself():
    """Column j minimises ‖x_j − X b‖² + reg bᵀ R b over b with b_j = 0: a regression on the other items."""
    torch.manual_seed(1)
    known, x = attributes([0, 1], [0], [1, 2], [2], [0, 2]), (torch.rand(9, 5) < 0.5).double()
    penalty = 0.8 * dense_ridge(known, 1.5)
    found = without_diagonal(x.T @ x, 0.8, AttributePrior(1.5, 0.0, 0, known))
    for item in range(5):
        rest = [other for other in range(5) if other != item]
        system = (x.T @ x + penalty)[rest][:, rest]
        torch.testing.assert_close(found[rest, item], torch.linalg.solve(system, (x.T @ x)[rest, item]))
        assert found[item, item] == 0


def test_a_source_without_a_training_row_speaks_by_its_attributes():
    """Item 2 is never a source in training, but shares its attribute with item 0, which leads to item 1."""
    memories, following = torch.diag(torch.tensor([4.0, 1.0, 0.0])), torch.zeros(3, 3)
    following[0, 1] = 4.0
    known = attributes([0], [1], [0])
    plain, informed = (
        next_item_weights(memories.double(), following.double(), 0.1, 0.0, AttributePrior(rho, 0.0, 0, known))
        for rho in (0.0, 5.0)
    )
    assert plain[2, 1] == 0
    assert 0 < informed[2, 1] < informed[0, 1]


@pytest.fixture
def data():
    """Everybody goes from item a to b to c, then to d, or to its double e, which nobody has in training."""
    rows = [[0, 1, 2, 3, 5, 6], [0, 1, 2, 3, 6, 5], [7, 0, 1, 2, 5, 3], [0, 1, 7, 2, 6, 4]]
    users = [f"u{user}" for user, items in enumerate(rows) for _ in items]
    items = [f"i{item}" for row in rows for item in row]
    made = Interactions.from_columns("made", users, items, np.arange(len(users)))
    return made.with_attributes(
        {"i3": ["d"], "i4": ["d"], "i5": ["x"], "i6": ["x"], "i0": ["a"], "i1": ["b"]}
    )


@pytest.mark.parametrize(("name", "options"), [("fedslist", {"ridge": 0.1}), ("fedease", {"reg": 1.0})])
def test_a_cold_item_is_scored_by_its_attributes(data, name, options):
    parts = split(data, "strict")
    assert 4 not in parts.train.values
    plain, informed = (
        train(
            RunConfig(
                method=name, dataset="made", rounds=1, options={**options, "target_attributes": weight}
            ),
            data,
            threads=1,
        )
        for weight in (0.0, 0.5)
    )
    one, other = (run._simulation.serve(parts.train)(np.array([3]))[0] for run in (plain, informed))
    assert one[4] == 0
    assert other[4] == pytest.approx(0.5 * float(one[3]), rel=1e-5)  # its only neighbour has the same vector
    assert other[4] > 0
    torch.testing.assert_close(other[7], one[7])  # has no attributes


def test_data_without_attributes_are_refused(data):
    config = RunConfig(method="fedease", dataset="made", rounds=1, options={"source_attributes": 1.0})
    with pytest.raises(DataError, match="need attributes of items"):
        train(config, replace(data, attributes=None), threads=1)
    with pytest.raises(ConfigError, match="omit neighbours"):
        find("fedease", {"target_attributes": 1.0, "neighbours": 2})


def test_attributes_are_renumbered_with_items(data):
    some = data.select(data.items > 2).renumbered()
    assert [some.attributes.row(i).tolist() for i in range(3)] == [
        data.attributes.row(i).tolist() for i in (3, 4, 5)
    ]
