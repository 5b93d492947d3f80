"""Sums of sparse matrices, and regressions on supports, against dense computations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from solera.core import sparse
from solera.core.closed_form import NEIGHBOURS, WEIGHTS
from solera.core.leaf import Params
from solera.core.sparse import Rows, SparseTotal
from solera.math import sparse_ridge
from solera.math.sparse_ridge import Neighbours, chosen, diagonal, of_rows, of_upper, resized, solved


def dense(rows: Rows, columns: int) -> np.ndarray:
    found = np.zeros((len(rows.offsets) - 1, columns))
    for row in range(len(found)):
        which, values = rows.row(row)
        assert (np.diff(which) > 0).all()
        found[row, which] = values
    return found


def upper_rows(matrix: np.ndarray) -> Rows:
    total = SparseTotal(len(matrix), matrix.shape[1], np.float64)
    row, column = np.nonzero(np.triu(matrix))
    total.add(row, column, matrix[row, column])
    return total.take()


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(-3, 9)), max_size=12)),
    st.integers(1, 20),
    st.integers(1, 9),
    st.sampled_from([0, 35]),
)
def test_a_sparse_total_is_the_sum_of_all_entries(parts, batch, piece, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "_BATCH", batch)
        patch.setattr(sparse, "_PIECE", piece)
        patch.setattr(sparse, "_FEW_CELLS", few)
        total, expected = SparseTotal(7, 5, np.float64), np.zeros((7, 5))
        for part in parts:
            row, column, value = np.array(part, dtype=np.int64).reshape(-1, 3).T
            total.add(row, column, value)
            np.add.at(expected, (row, column), value)
        assert dense(total.take(), 5).tolist() == expected.tolist()


def co_occurrences(seed: int, items: int = 8, users: int = 40) -> np.ndarray:
    met = np.random.default_rng(seed).random((users, items)) < 0.5
    return met.T.astype(np.float64) @ met


@given(st.integers(0, 9999), st.integers(1, 9), st.floats(0.1, 50), st.sampled_from([1, 300, 1 << 20]))
def test_every_item_is_the_ridge_regression_on_its_best_neighbours(seed, k, reg, at_once):
    gram = co_occurrences(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_ridge, "_SYSTEMS", at_once)
        patch.setattr(sparse_ridge, "_SOLVED", at_once)
        upper = upper_rows(gram)
        ids, weights = solved(upper, of_upper(upper), 8, k, reg)
    for item in range(8):
        score = gram[:, item] / np.diag(gram) ** 0.7
        score[item] = -1
        used = weights[item] != 0
        found = ids[item][used].numpy()
        assert len(set(found)) == len(found) == min(k, 7)
        assert score[found].min() >= np.sort(score)[::-1][min(k, 7) - 1]
        system = gram[np.ix_(found, found)] + reg * np.eye(len(found))
        assert weights[item][used].numpy() == pytest.approx(
            np.linalg.solve(system, gram[found, item]), rel=1e-9
        )


def test_sources_and_targets_may_differ():
    """Two sources per target, by hand: S = diag(2, 1, 4), T = [[2, 0], [1, 3], [0, 4]], reg 2.

    Target 0 has the sources 0 and 1: 2 / (2 + 2) and 1 / (1 + 2). Target 1 has 1 and 2: 3 / 3 and 4 / 6.
    """
    system = upper_rows(np.diag([2.0, 1.0, 4.0]))
    targets = SparseTotal(2, 3, np.float64)
    targets.add(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), np.array([2.0, 1.0, 3.0, 4.0]))
    ids, weights = solved(system, of_rows(targets.take()), 2, 3, 2.0)
    assert ids.tolist() == [[0, 1, 0], [1, 2, 0]]
    assert weights.numpy() == pytest.approx(np.array([[0.5, 1 / 3, 0], [1, 2 / 3, 0]]))


def test_a_missing_diagonal_is_zero():
    matrix = np.array([[0.0, 2.0, 1.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    assert diagonal(upper_rows(matrix)).tolist() == [0.0, 3.0, 0.0]


def test_common_sources_count_less():
    """T is 4 and 3; of a source that is met 16 times, 4 / 16^0.7 is less than 3 / 4^0.7."""
    candidates = sparse_ridge.Candidates(np.array([2]), np.array([0, 1]), np.array([4.0, 3.0]))
    assert chosen(candidates, np.array([16.0, 4.0]) ** -0.7, 1).sources.tolist() == [[1]]


def solved_form(seed: int, items: int = 7, k: int = 3, channels: int = 2) -> Params:
    draw = np.random.default_rng(seed)
    ids = np.stack([draw.choice(items * channels, k, replace=False) for _ in range(items)])
    values = draw.normal(size=(items, k)) * (draw.random((items, k)) < 0.8)
    return {NEIGHBOURS: torch.from_numpy(ids.astype(np.int32)), WEIGHTS: torch.from_numpy(values)}


def sparse_weights(shared: Params, channels: int = 2) -> Neighbours:
    found = Neighbours.of(shared, channels)
    assert found is not None
    return found


def matrix_of(weights: Neighbours) -> Tensor:
    """The weights of all sources for all items."""
    return torch.stack([weights.column(item).flatten() for item in range(weights.n_items)], dim=1)


@given(st.integers(0, 999), st.integers(1, 40))
def test_scores_rows_and_columns_are_those_of_the_dense_matrix(seed, at_once):
    shared, draw = solved_form(seed), np.random.default_rng(seed)
    weights = sparse_weights(shared)
    matrix = matrix_of(weights)
    assert matrix.T.gather(1, shared[NEIGHBOURS].long()).equal(shared[WEIGHTS])
    assert matrix.count_nonzero() == shared[WEIGHTS].count_nonzero()
    for source in range(14):
        assert torch.equal(weights.row(source), matrix[source])
    rows = np.sort(draw.integers(0, 4, 9))
    sources, times = draw.integers(0, 14, 9), torch.from_numpy(draw.normal(size=9))
    memory = torch.zeros(4, 14, dtype=torch.float64)
    memory.index_put_((torch.from_numpy(rows), torch.from_numpy(sources)), times, accumulate=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("solera.math.sparse_ridge._AT_ONCE", at_once)
        torch.testing.assert_close(weights.scores(rows, sources, times, 4), memory @ matrix)


def test_more_and_fewer_items_keep_the_weights_between_those_that_remain():
    shared = solved_form(5)
    matrix, grown = matrix_of(sparse_weights(shared)), resized(shared, 9, 2)
    more = matrix_of(sparse_weights(grown))
    assert torch.equal(more[:14, :7], matrix)
    assert not more[14:].any()
    assert not more[:, 7:].any()
    assert torch.equal(resized(grown, 7, 2)[WEIGHTS], shared[WEIGHTS])
    assert torch.equal(matrix_of(sparse_weights(resized(shared, 4, 2))), matrix[:8, :4])


@pytest.mark.parametrize("wrong", [-1, 14])
def test_sources_that_do_not_exist_are_refused(wrong):
    shared = solved_form(1)
    shared[NEIGHBOURS][2, 1] = wrong
    with pytest.raises(ValueError, match="do not exist"):
        Neighbours.of(shared, 2)


@given(st.integers(0, 999), st.integers(1, 14))
def test_compact_weights_are_the_largest_ones_to_the_nearest_of_255_levels(seed, each):
    whole = torch.from_numpy(np.random.default_rng(seed).normal(size=(14, 7)))
    matrix = whole.view(2, 7, 7).permute(1, 0, 2).reshape(14, 7)  # sources are item · 2 + channel
    compact = Neighbours.largest(whole, 2, each).compact(each)
    found = matrix_of(sparse_weights(compact))
    least = matrix.abs().flatten().sort(descending=True).values[7 * each - 1]
    kept = torch.where(matrix.abs() >= least, matrix, 0.0)
    step = kept.abs().amax(0) / 127
    assert bool(((found - kept).abs() <= step / 2 * 1.0001).all())
    assert compact["sources"].dtype == torch.uint16
    assert compact["levels"].dtype == torch.int8
    assert len(compact["levels"]) == 7 * each


def test_compact_weights_of_many_items_have_longer_numbers():
    shared = {
        NEIGHBOURS: torch.tensor([[40_000]] * 40_001, dtype=torch.int32),
        WEIGHTS: torch.ones(40_001, 1),
    }
    compact = sparse_weights(shared).compact(320)
    assert compact["sources"].dtype == torch.int32
    assert sparse_weights(compact).row(40_000).equal(torch.ones(40_001))
