from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.core.leaf import Home, Leaf
from solera.core.upload import Totals, Upload, upload_bytes

CPU = torch.device("cpu")
TABLE = Leaf("items", (2,), Home.SHARED, per_item=True, upload=True)
BIAS = Leaf("item bias", (), Home.SHARED, per_item=True, upload=True)
LAYER = Leaf("layer", (2, 3), Home.SHARED, upload=True)
SCALE = Leaf("scale", (), Home.SHARED, upload=True)
USER = Leaf("user", (5,), Home.PERSONAL)
FROZEN = Leaf("frozen", (7,), Home.SHARED, per_item=True)


@st.composite
def leaf_sets(draw: st.DrawFn) -> tuple[Leaf, ...]:
    names = draw(st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=6))
    leaves = []
    for name in names:
        home = draw(st.sampled_from(Home))
        upload = home is Home.SHARED and draw(st.booleans())
        shape = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
        leaves.append(Leaf(name, shape, home, per_item=draw(st.booleans()), upload=upload))
    return tuple(leaves)


@given(leaves=leaf_sets(), counts=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_only_declared_leaves_leave(leaves, counts) -> None:
    """Whatever is trained, and whatever else stands in the parameters."""
    n_rows = sum(counts)
    shapes = {leaf.name: (n_rows if leaf.per_item else len(counts), *leaf.shape) for leaf in leaves}
    before = {name: torch.rand(shape) for name, shape in shapes.items()}
    after = {name: torch.rand(shape) for name, shape in shapes.items()}
    before["!undeclared"] = after["!undeclared"] = torch.ones(3)
    rows = torch.zeros(n_rows, dtype=torch.int64)
    upload = Upload.declared(leaves, rows, torch.tensor(counts), before, after)
    assert set(upload.changes) == {leaf.name for leaf in leaves if leaf.upload}
    assert not {leaf.name for leaf in leaves if leaf.home is Home.PERSONAL} & set(upload.changes)
    for name, change in upload.changes.items():
        assert torch.equal(change, after[name] - before[name])
    assert upload.n_clients == len(counts)
    assert upload_bytes(upload.row_counts, leaves).shape == (len(counts),)


def test_bytes_by_hand() -> None:
    """Clients of 3, 0 and 1 rows; 4 bytes for a float and for a row number.

    Table and item bias: a row is its number and 2 + 1 floats, 4 + 12 = 16 bytes. Layer and scale: 6 + 1
    floats, 28 bytes, whatever the rows. Personal and frozen leaves cost nothing.
    """
    upload = Upload(torch.tensor([4, 7, 9, 0]), torch.tensor([3, 0, 1]), {})

    def sizes(*leaves: Leaf) -> list[int]:
        return upload_bytes(upload.row_counts, leaves).tolist()

    assert sizes(TABLE, BIAS, LAYER, SCALE, USER, FROZEN) == [3 * 16 + 28, 28, 16 + 28]
    assert sizes(TABLE, USER) == [3 * 12, 0, 12]
    assert sizes(LAYER, FROZEN) == [24, 24, 24]  # no rows travel, so no row numbers do
    assert sizes(USER, FROZEN) == [0, 0, 0]


N_ITEMS = 6
LEAVES = (TABLE, BIAS, LAYER, SCALE, USER, FROZEN)


SENT = LEAVES[:4]


def upload_of(clients: list[tuple[list[int], int]]) -> Upload:
    """Clients are (rows, seed); their changes are whole multiples of 2^−22 between −1/4 and 1/4."""
    rows = torch.tensor([row for items, _ in clients for row in items], dtype=torch.int64)
    counts = torch.tensor([len(items) for items, _ in clients], dtype=torch.int64)
    each = []
    for items, seed in clients:
        draw = np.random.default_rng(seed)
        shapes = {leaf.name: (len(items) if leaf.per_item else 1, *leaf.shape) for leaf in SENT}
        each.append({name: draw.integers(-(2**20), 2**20, s) / 2**22 for name, s in shapes.items()})
    changes = {
        leaf.name: torch.tensor(np.concatenate([c[leaf.name] for c in each]), dtype=torch.float32)
        for leaf in SENT
    }
    return Upload(rows, counts, changes)


def totals_of(groups: list[list[tuple[list[int], int]]]) -> Totals:
    totals = Totals(LEAVES, N_ITEMS, CPU)
    for group in groups:
        totals.add(upload_of(group))
    return totals


@given(
    rows=st.lists(st.sets(st.integers(0, N_ITEMS - 1)), min_size=1, max_size=8),
    cuts=st.sets(st.integers(1, 7)),
    order=st.randoms(use_true_random=False),
)
def test_totals_do_not_depend_on_order_and_grouping(rows, cuts, order) -> None:
    """float32 changes of like magnitude add up exactly in float64, so the sums must be the same bits."""
    clients = [(sorted(items), seed) for seed, items in enumerate(rows)]
    expected = totals_of([[client] for client in clients])
    shuffled = clients.copy()
    order.shuffle(shuffled)
    ends = [0, *sorted(cut for cut in cuts if cut < len(clients)), len(clients)]
    got = totals_of([shuffled[a:b] for a, b in pairwise(ends)])
    assert got.weight == expected.weight == len(clients)
    for leaf in SENT:
        assert torch.equal(got.leaf(leaf.name).change, expected.leaf(leaf.name).change)
        assert torch.equal(got.leaf(leaf.name).weight, expected.leaf(leaf.name).weight)
    assert got.leaf("items").weight.tolist() == [sum(i in items for items in rows) for i in range(N_ITEMS)]


def test_totals_by_hand() -> None:
    """Client 0 changes rows 1 and 3, client 1 row 3."""
    leaves = (TABLE, SCALE)
    upload = Upload(
        torch.tensor([1, 3, 3]),
        torch.tensor([2, 1]),
        {"items": torch.tensor([[1.0, 2], [3, 4], [10, 20]]), "scale": torch.tensor([5.0, 7.0])},
    )
    totals = Totals(leaves, 4, CPU)
    totals.add(upload)
    ones = {"items": torch.ones(1, 2), "scale": torch.ones(1)}
    totals.add(Upload(torch.tensor([1]), torch.tensor([1]), ones))
    assert totals.weight == 3
    assert totals.leaf("items").change.tolist() == [[0, 0], [2, 3], [0, 0], [13, 24]]
    assert totals.leaf("items").weight.tolist() == [0, 2, 0, 2]
    assert float(totals.leaf("scale").change) == 13


def test_totals_hold_uploaded_leaves_only() -> None:
    totals = Totals(LEAVES, N_ITEMS, CPU)
    for hidden in ("user", "frozen"):
        with pytest.raises(KeyError):
            totals.leaf(hidden)


def test_nothing_uploaded_leaves_nothing_to_see() -> None:
    """Of clients that send nothing the server must not learn which rows they touched."""
    totals = Totals((USER, FROZEN), N_ITEMS, CPU)
    totals.add(Upload.declared((USER, FROZEN), torch.tensor([2, 3]), torch.tensor([2]), {}, {}))
    assert totals.weight == 1
    assert totals.row_weights.tolist() == [0] * N_ITEMS


def test_weights_by_hand() -> None:
    """Clients of weight 3 and 1; item 1 is touched by both: 3 · 2 + 1 · 10 = 16."""
    leaf = Leaf("items", (1,), Home.SHARED, per_item=True, upload=True)
    whole = Leaf("scale", (2,), Home.SHARED, upload=True)
    changes = {
        "items": torch.tensor([[1.0], [2.0], [10.0]]),
        "scale": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
    }
    upload = Upload(torch.tensor([0, 1, 1]), torch.tensor([2, 1]), changes)
    totals = Totals((leaf, whole), 3, CPU)
    totals.add(upload, torch.tensor([3.0, 1.0], dtype=torch.float64))
    assert totals.weight == 4
    assert totals.leaf("items").change.tolist() == [[3.0], [16.0], [0.0]]
    assert totals.leaf("items").weight.tolist() == [3.0, 4.0, 0.0]
    assert totals.leaf("scale").change.tolist() == [3.0, 1.0]
    assert float(totals.leaf("scale").weight) == 4
    assert changes["items"].tolist() == [[1.0], [2.0], [10.0]]
