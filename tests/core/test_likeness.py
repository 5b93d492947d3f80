from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from solera.math.mixing import clusters, cosines


def draw(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(draw(seed).standard_normal(shape))


def groups(labels: Tensor) -> set[frozenset[int]]:
    return {frozenset(torch.nonzero(labels == label).flatten().tolist()) for label in labels.unique()}


def directly(tables: Tensor) -> Tensor:
    flat = torch.nn.functional.normalize(tables.double().flatten(1), dim=1)
    return flat @ flat.T


def test_cosines_are_those_of_the_whole_tables():
    tables = normal(5, 7, 3) + 2
    torch.testing.assert_close(cosines(tables), directly(tables), rtol=1e-12, atol=1e-12)


def test_cosines_of_nearly_equal_tables_are_not_rounding():
    """Tables of single precision that differ in their fifth digit: 1 − cosine is about 1e-10."""
    tables = (100 * normal(1, 400, 8) + 1e-3 * normal(4, 400, 8, seed=1)).float()
    distances, expected = 1 - cosines(tables), 1 - directly(tables)
    apart = ~torch.eye(4, dtype=torch.bool)
    assert (expected[apart] < 1e-9).all()
    torch.testing.assert_close(distances[apart], expected[apart], rtol=1e-3, atol=0)


def test_a_table_of_zeros_is_like_no_other():
    assert cosines(torch.tensor([[[0.0]], [[2.0]]])).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("seed", range(5))
def test_clusters_of_known_groups(seed):
    """Three directions with a little noise, in any order, however long the tables are."""
    who = torch.from_numpy(draw(seed).permutation(30) % 3)
    tables = (normal(3, 20, 4)[who] + 0.3 * normal(30, 20, 4, seed=1)) * (1 + torch.arange(30) / 30).view(
        -1, 1, 1
    )
    assert groups(clusters(tables, 3, draw(seed))) == groups(who)


def test_more_clusters_than_tables():
    tables = normal(3, 4, 2)
    assert groups(clusters(tables, 9, draw())) == {frozenset({0}), frozenset({1}), frozenset({2})}


def test_equal_tables_are_one_cluster():
    labels = clusters(normal(1, 4, 2).expand(6, 4, 2), 3, draw())
    assert len(labels.unique()) == 1


def test_one_cluster():
    assert clusters(normal(6, 4, 2), 1, draw()).tolist() == [0] * 6
