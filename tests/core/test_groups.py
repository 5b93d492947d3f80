"""Groups of clients whose sums are combined: by hand, and what one of them can do."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.core.upload import Sums
from solera.math.robust import combine
from solera.methods import find

LEAVES = find("fedmf", {"embedding_size": 1}).leaves
NCF = find("fedncf", {"embedding_size": 2}).leaves


def group(weight: float, **rows: tuple[float, float]) -> Sums:
    """Row weights and sums of rows, of an item table of one column."""
    numbers = sorted(int(name[1:]) for name in rows)
    weights, sums = zip(*(rows[f"i{number}"] for number in numbers), strict=True)
    return Sums(
        torch.tensor(numbers),
        torch.tensor(weights, dtype=torch.float64),
        weight,
        {"items": torch.tensor(sums, dtype=torch.float64)[:, None]},
    )


THREE = [
    group(4.0, i0=(2, 2.0), i1=(4, 4.0)),
    group(2.0, i0=(1, 3.0)),
    group(4.0, i0=(1, 100.0), i2=(4, -8.0)),
]


def test_medians_by_hand():
    """Row 0 has means 1, 3 and 100, of 4 clients in all: the median is 3, so the sum is 12."""
    found = combine(THREE, LEAVES, 4, "median")
    assert found.rows.tolist() == [0, 1, 2]
    assert found.row_weights.tolist() == [4, 4, 4]
    assert found.weight == 10
    assert found.changes["items"].squeeze(1).tolist() == pytest.approx([12.0, 4.0, -8.0])


def test_medians_over_all_by_hand():
    """Means over all clients of a group: row 0 has 0.5, 1.5 and 25; rows 1 and 2 have one that is not 0."""
    found = combine(THREE, LEAVES, 4, "median", over="all")
    assert found.changes["items"].squeeze(1).tolist() == pytest.approx([15.0, 0.0, 0.0])


def test_trimmed_means_by_hand():
    """Of 1, 2, 3, 4 and 100, a fifth is left out at either end: the mean is 3, of five clients."""
    five = [group(1.0, i0=(1, value)) for value in (100.0, 1.0, 2.0, 3.0, 4.0)]
    found = combine(five, LEAVES, 1, "trimmed-mean", trim=0.2)
    assert float(found.changes["items"]) == pytest.approx(15.0)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6))
def test_the_mean_of_alike_groups_is_the_sum(values):
    groups = [group(3.0, i0=(3, value)) for value in values]
    found = combine(groups, LEAVES, 1, "mean")
    assert float(found.changes["items"]) == pytest.approx(sum(values), abs=1e-9)


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=7), st.floats(-1e9, 1e9), st.data())
def test_one_group_of_three_or_more_cannot_leave_the_range_of_the_others(values, lie, data):
    liar = data.draw(st.integers(0, len(values) - 1))
    honest = [value for place, value in enumerate(values) if place != liar]
    groups = [group(1.0, i0=(1, lie if place == liar else value)) for place, value in enumerate(values)]
    found = float(combine(groups, LEAVES, 1, "median").changes["items"]) / len(values)
    assert min(honest) - 1e-9 <= found <= max(honest) + 1e-9


def test_leaves_that_are_not_per_item():
    names = {leaf.sent_as: leaf for leaf in NCF if leaf.sent_as}
    groups = [
        Sums(
            torch.tensor([0]),
            torch.ones(1, dtype=torch.float64),
            2.0,
            {
                name: torch.full(
                    (1, *leaf.shape) if leaf.per_item else leaf.shape, value, dtype=torch.float64
                )
                for name, leaf in names.items()
            },
        )
        for value in (2.0, 4.0, 1e6)
    ]
    found = combine(groups, NCF, 1, "median")
    for name, leaf in names.items():
        wanted = 3 * 4.0 if leaf.per_item else 6 * 2.0  # row weight 3 and mean 4; weight 6 and mean 2
        assert float(found.changes[name].flatten()[0]) == pytest.approx(wanted)
