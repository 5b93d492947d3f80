"""Codings of downloads: known answers, and the bytes of every client counted one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from solera.coding.settings import download_coding
from solera.coding.tables import Int8Table, ProductQuantised, ResidualQuantised
from solera.core.spec import Home, Leaf, Params
from solera.methods import build

METHOD = build("fedmf", {"embedding_size": 6})
LEAF = Leaf("items", (6,), Home.SHARED, per_item=True, upload=True)


def table(n_items: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n_items, 6)))


def test_an_int8_table_by_hand():
    rows = torch.tensor([[127.0, 0.4, 0.6], [0.0, 0.0, 0.0], [-0.5, 0.25, 0.0]])
    coded = Int8Table().coded(LEAF, rows, {}, 0)
    assert coded["codes"].tolist() == [[127, 0, 1], [0, 0, 0], [-127, 64, 0]]  # 63.5 rounds to even
    decoded = Int8Table().decoded(coded, rows)
    assert decoded[0].tolist() == [127, 0, 1]
    assert decoded[1].tolist() == [0, 0, 0]
    assert Int8Table().sizes(Leaf("items", (3,), Home.SHARED, per_item=True), 3) == (3 + 4, 0)


def test_every_piece_is_replaced_by_its_nearest_centroid():
    rows, coding = table(2_000), ProductQuantised(2)
    coded = coding.coded(LEAF, rows, {}, 0)
    book = coded["book"].double()
    for piece, columns in enumerate((slice(0, 3), slice(3, 6))):
        nearest = torch.cdist(rows[:, columns], book[:, columns]).argmin(1)
        assert torch.equal(nearest, coded["codes"][:, piece].long())
    assert coding.sizes(LEAF, 2_000) == (2, 2 * 256 * 6)


def test_no_more_than_256_different_rows_are_exact():
    """Every row is a centroid, in half precision."""
    rows, coding = table(200).half().double(), ProductQuantised(3)
    assert torch.equal(coding.decoded(coding.coded(LEAF, rows, {}, 0), rows), rows)
    assert coding.sizes(LEAF, 200) == (3, 2 * 200 * 6)


def test_centroids_continue_from_the_former_version():
    rows, coding = table(3_000), ProductQuantised(3)
    coded: Params = {}
    errors: list[float] = []
    for version in range(8):
        coded = coding.coded(LEAF, rows, coded, version)
        errors.append(float((coding.decoded(coded, rows) - rows).square().sum()))
    assert all(later < former for former, later in pairwise(errors))


def test_every_code_is_the_centroid_nearest_to_what_the_former_ones_leave():
    rows, coding = table(2_000), ResidualQuantised(3)
    coded = coding.coded(LEAF, rows, {}, 0)
    left = rows
    for place, book in enumerate(coded["book"].double()):
        nearest = torch.cdist(left, book).argmin(1)
        assert torch.equal(nearest, coded["codes"][:, place].long())
        steps = book / (book.abs().amax(1, keepdim=True) / 127)
        torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-4)  # int8, as it is counted
        left = left - book[nearest]
    torch.testing.assert_close(coding.decoded(coded, rows), rows - left)
    assert coding.sizes(LEAF, 2_000) == (3, 3 * 256 * (6 + 4))


@pytest.mark.parametrize(
    ("text", "row", "rest"), [("delta", 24, 0), ("int8+delta", 6 + 4, 0), ("pq:3+delta", 3, 2 * 40 * 6)]
)
def test_a_delta_has_the_rows_that_changed_since_the_clients_last_round(text, row, rest):
    n_items, clients = 40, 5
    coding = download_coding(text, METHOD, 0)
    shared = {"items": table(n_items)}
    memory = coding.memory(shared, clients)
    draw = np.random.default_rng(1)
    missed: dict[int, set[int]] = {}  # of every client that took part: rows that changed since
    for _ in range(8):
        some = np.sort(draw.choice(clients, 2, replace=False))
        whole = n_items * row + rest
        expected = [
            min(n_items // 8 + len(missed[client]) * row + rest, whole) if client in missed else whole
            for client in some.tolist()
        ]
        found, changed = coding.sent(memory, some, n_items)
        assert found == np.mean(expected)
        missed |= {client: set() for client in some.tolist()}
        touched = torch.from_numpy(draw.choice(n_items, 4, replace=False))
        shared["items"] = shared["items"].index_add(0, touched, table(4, seed=int(touched[0])))
        after = coding.renewed(memory | changed, shared, torch.zeros(n_items))
        parts = [name for name in memory if name.endswith(("codes", "scales"))]
        differ = torch.stack([(memory[p] != after[p]).view(n_items, -1).any(1) for p in parts]).any(0)
        assert 0 < int(differ.sum()) < n_items
        for rows in missed.values():
            rows.update(differ.nonzero().squeeze(1).tolist())
        memory = after


def test_a_slice_has_the_rows_that_most_clients_changed():
    coding = download_coding("slice:0.5", METHOD, 0)
    shared = {"items": table(4)}
    memory = coding.memory(shared, 3)
    memory = coding.renewed(memory, shared, torch.tensor([1.0, 5.0, 0.0, 2.0]))
    assert coding.out_of_reach(memory).tolist() == [True, False, True, False]
    assert coding.sent(memory, np.array([0]), 4)[0] == 2 * (24 + 4)
    assert coding.asked(memory, torch.tensor([0, 1, 2, 0])) == (3 * 4, 3 * 24)


def test_parts_beyond_the_length_of_a_row_are_not_sent():
    rows, coding = table(10), ProductQuantised(8)
    coded = coding.coded(LEAF, rows, {}, 0)
    assert coded["codes"].shape == (10, 6)
    assert coding.sizes(LEAF, 10)[0] == 6


def test_a_bias_is_kept_in_half_precision():
    """Of 4 bytes 2 are the bias, and 2 stand for the other 5 numbers."""
    leaf = Leaf("items", (6,), Home.SHARED, per_item=True, upload=True, bias=True)
    rows, coding = table(2_000), ProductQuantised(4)
    coded = coding.coded(leaf, rows, {}, 0)
    assert coded["codes"].shape == (2_000, 2)
    assert coding.sizes(leaf, 2_000) == (4, 2 * 256 * 5)
    decoded = coding.decoded(coded, rows)
    torch.testing.assert_close(decoded[:, 0], rows[:, 0], rtol=2**-11, atol=1e-7)
    other = Leaf("items", (5,), Home.SHARED, per_item=True)
    alone = ProductQuantised(2).coded(other, rows[:, 1:], {}, 0)
    assert torch.equal(decoded[:, 1:], ProductQuantised(2).decoded(alone, rows[:, 1:]))
