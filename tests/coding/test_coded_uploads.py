"""Codings of uploads: known answers, bounds, and what stays on the clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from solera.coding import Int8, LargestRows, quantised, upload_coding
from solera.core.leaf import Home, Leaf
from solera.core.protection import Chain
from solera.core.upload import Upload
from solera.engine.store import StoredResiduals

TABLE = Leaf("items", (3,), Home.SHARED, per_item=True, upload=True)
WHOLE = Leaf("layer", (2, 2), Home.SHARED, upload=True)
CODINGS = ["int8", "top-k:0.5"]


def upload(*clients: list[list[float]], first: int = 0) -> Upload:
    """Clients' changes of the rows 0, 1, …, and of a layer."""
    counts = torch.tensor([len(rows) for rows in clients])
    rows = torch.cat([torch.arange(len(rows)) for rows in clients]) + first
    items = torch.cat([torch.tensor(rows, dtype=torch.float64).view(-1, 3) for rows in clients])
    layer = torch.arange(4.0 * len(clients), dtype=torch.float64).view(-1, 2, 2)
    return Upload(rows, counts, {"items": items, "layer": layer})


def random_upload(seed: int, clients: int = 4) -> Upload:
    draw = np.random.default_rng(seed)
    return upload(*(draw.normal(size=(draw.integers(1, 9), 3)).tolist() for _ in range(clients)))


def test_int8_by_hand():
    """The scale is 1.27 / 127 = 0.01: 0.504 is 50.4 of it and becomes 50, −0.006 becomes −1."""
    sent = Int8().coded(upload([[1.27, 0.504, -0.006], [0.0, 0.0, 0.0]]), (TABLE, WHOLE))
    expected = torch.tensor([[1.27, 0.50, -0.01], [0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(sent.changes["items"], expected, rtol=1e-6, atol=0)
    assert Int8().bytes_per_client(sent, (TABLE, WHOLE)).tolist() == [2 * (4 + 3 + 4) + 4 + 4]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3))
@example([0.0, 0.0, 7.847271400218976e-44])
def test_int8_is_off_by_half_a_step_at_most(row):
    values = torch.tensor([row], dtype=torch.float64)
    codes, scales = quantised(values)
    error = (codes.double() * scales.double() - values).abs().max()
    # The scale is in single precision, next to zero in steps of 2^-149: off by half of one, times 127.
    assert error <= float(values.abs().max()) / 254 * (1 + 1e-5) + 127 * 2.0**-150
    assert int(codes.abs().max()) <= 127


def test_the_largest_rows_by_hand():
    """Of three rows with a share of a half two are sent, of one row it is that one."""
    given_ = upload([[1, 0, 0], [0, 3, 0], [0, 0, 2]], [[5, 5, 5]])
    sent = LargestRows(0.5).coded(given_, (TABLE, WHOLE))
    assert sent.rows.tolist() == [1, 2, 0]
    assert sent.row_counts.tolist() == [2, 1]
    assert sent.changes["items"].tolist() == [[0, 3, 0], [0, 0, 2], [5, 5, 5]]
    assert torch.equal(sent.changes["layer"], given_.changes["layer"])
    assert LargestRows(0.5).bytes_per_client(sent, (TABLE, WHOLE)).tolist() == [2 * 16 + 16, 16 + 16]


@pytest.mark.parametrize("text", CODINGS)
@given(seed=st.integers(0, 50))
def test_a_client_is_coded_alike_alone_and_among_others_and_at_any_scale(text, seed):
    coding, leaves, given_ = upload_coding(text), (TABLE, WHOLE), random_upload(seed)
    together = coding.coded(given_, leaves)
    scaled = Upload(given_.rows, given_.row_counts, {n: v / 4 for n, v in given_.changes.items()})
    for name, value in coding.coded(scaled, leaves).changes.items():
        torch.testing.assert_close(value, together.changes[name] / 4, rtol=1e-12, atol=1e-15)
    for client in range(given_.n_clients):
        alone = coding.coded(given_.of_client(client, leaves), leaves)
        among = together.of_client(client, leaves)
        assert torch.equal(alone.rows, among.rows)
        for name in among.changes:
            torch.testing.assert_close(alone.changes[name], among.changes[name], rtol=1e-12, atol=1e-14)
        assert coding.bytes_per_client(alone, leaves) == coding.bytes_per_client(together, leaves)[client]


@pytest.mark.parametrize("text", CODINGS)
def test_nothing_is_lost_of_rows_that_come_again(text):
    """What was sent in all rounds and what is left add up to what should have been sent."""
    leaves, clients = (TABLE, WHOLE), np.array([2, 5])
    residuals = StoredResiduals(leaves, 6, torch.device("cpu"))
    chain = Chain(coding=upload_coding(text))
    wanted = torch.zeros(8, 3, dtype=torch.float64)
    arrived = torch.zeros(8, 3, dtype=torch.float64)
    draw = np.random.default_rng(0)
    for round_ in range(5):
        given_ = upload(draw.normal(size=(5, 3)).tolist(), draw.normal(size=(8, 3)).tolist())
        sent = chain.begin(round_, leaves, {}, residuals).send(clients, given_)
        wanted.index_add_(0, given_.rows, given_.changes["items"])
        arrived.index_add_(0, sent.rows, sent.changes["items"])
    left = residuals.tensors()["residual/items/values"]
    assert left.abs().max() > 0
    rest = torch.zeros(8, 3, dtype=torch.float64).index_add_(0, given_.rows, left)
    torch.testing.assert_close(arrived + rest, wanted)


def test_the_residual_of_a_row_that_does_not_come_again_is_dropped():
    residuals = StoredResiduals((TABLE,), 1, torch.device("cpu"))
    begun = Chain(coding=Int8()).begin(0, (TABLE,), {}, residuals)
    one = Upload(torch.tensor([0]), torch.tensor([1]), {"items": torch.tensor([[1.27, 0.504, 0.0]])})
    begun.send(np.array([0]), one)
    other = Upload(torch.tensor([4]), torch.tensor([1]), {"items": torch.tensor([[1.27, 0.5, 0.0]])})
    begun.send(np.array([0]), other)
    assert residuals.tensors()["residual/items/items"].tolist() == [4]
