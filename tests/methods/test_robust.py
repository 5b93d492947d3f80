"""Defences against single clients: numbers by hand, and what must hold of any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.core.errors import ConfigError
from solera.core.leaf import Home, Leaf
from solera.core.upload import Totals, Upload
from solera.engine.server import Server
from solera.math.robust import bound_norms, cap_rows, krum, trimmed_mean, trimmed_totals
from solera.methods import build
from solera.methods.robust import DEFENCES

CPU = torch.device("cpu")
LEAVES = (
    Leaf("items", (2,), Home.SHARED, per_item=True, upload=True),
    Leaf("scale", (1,), Home.SHARED, upload=True),
)
SHARED = {"items": torch.zeros(4, 2, dtype=torch.float64), "scale": torch.zeros(1, dtype=torch.float64)}


def double(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


# Five clients. Row 0 has clients 0, 1, 2, 3, 4; row 1 clients 0, 2; row 2 client 4; row 3 nobody.
UPLOAD = Upload(
    torch.tensor([0, 1, 0, 0, 1, 0, 0, 2]),
    torch.tensor([2, 1, 2, 1, 2]),
    {
        "items": double([1, 5], [2, 4], [2, 4], [3, 3], [4, 0], [4, 2], [100, -100], [7, 7]),
        "scale": double([1], [2], [3], [4], [-50]),
    },
)


def sums(trim: float, over: Any) -> dict[str, list]:
    found = trimmed_totals(UPLOAD, LEAVES, 4, trim, over)
    assert found.weight == 5
    assert found.rows.tolist() == [0, 1, 2]
    assert found.row_weights.tolist() == [5, 2, 1]
    return {name: values.tolist() for name, values in found.changes.items()}


def test_trimmed_mean_by_hand() -> None:
    """Row 0: 5 clients, ⌊0.2 · 5⌋ = 1 away at either end: (2 + 3 + 4) / 3 and (4 + 3 + 2) / 3, times 5.

    Two clients, or one, lose nobody. The scale is 1, 2, 3 without 4 and −50.
    """
    found = sums(0.2, "touching")
    assert found["items"] == [[15, 15], [6, 4], [7, 7]]
    assert found["scale"] == [10]


def test_median_by_hand() -> None:
    """Row 0: 3 and 3, of five; row 1: the middle of two is their mean."""
    found = sums(0.5, "touching")
    assert found["items"] == [[15, 15], [6, 4], [7, 7]]
    assert found["scale"] == [10]


def test_those_who_do_not_touch_a_row_as_zeros_by_hand() -> None:
    """Row 1 is 0, 0, 0, 2, 4: without the ends 0, 0, 2. Row 2 is 0, 0, 0, 0, 7: one client says nothing."""
    found = sums(0.2, "all")
    for got, wanted in zip(found["items"], [[15, 15], [10 / 3, 0], [0, 0]], strict=True):
        assert got == pytest.approx(wanted)
    assert sums(0.5, "all")["items"] == [[15, 15], [0, 0], [0, 0]]


def test_norm_bound_by_hand() -> None:
    """Squared lengths 47, 24, 43, 36, 22598: the median client's 43 is the longest that is left."""
    bounded = bound_norms(UPLOAD, LEAVES, 1.0)
    squares = [
        sum(float(v.square().sum()) for v in bounded.of_client(place, LEAVES).changes.values())
        for place in range(5)
    ]
    assert squares == pytest.approx([43, 24, 43, 36, 43])
    factor = (43 / 22598) ** 0.5
    assert bounded.changes["items"][-1].tolist() == pytest.approx([7 * factor] * 2)
    assert bounded.changes["scale"][-1].tolist() == pytest.approx([-50 * factor])


def test_row_cap_by_hand() -> None:
    """Squared rows: 26, 20 | 20 | 18, 16 | 20 | 20000, 98. The clients' means 23, 20, 17, 20, 10049.

    So rows are at most √20 long, and scales, whose lengths are 1, 2, 3, 4, 50, at most 3.
    """
    capped = cap_rows(UPLOAD, LEAVES, 1.0)
    squares = capped.changes["items"].square().sum(1).tolist()
    assert squares == pytest.approx([20, 20, 20, 18, 16, 20, 20, 20])
    assert capped.changes["items"][6].tolist() == pytest.approx([10**0.5, -(10**0.5)])
    assert capped.changes["scale"].flatten().tolist() == pytest.approx([1, 2, 3, 3, -3])


def test_krum_by_hand() -> None:
    """Scales alone, 1, 2, 4, 8 and 100, one suspect: the two nearest others count.

    1: 1 + 9 = 10; 2: 1 + 4 = 5; 4: 4 + 9 = 13; 8: 16 + 36 = 52; 100: 92² + 96².
    """
    upload = Upload(
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(5, dtype=torch.int64),
        {"items": torch.zeros(0, 2, dtype=torch.float64), "scale": double([4], [2], [100], [1], [8])},
    )
    totals = Totals(LEAVES, 4, CPU)
    assert krum(upload, totals, 1, 1).tolist() == [1]
    assert krum(upload, totals, 1, 3).tolist() == [0, 1, 3]
    assert krum(upload, totals, 1, 4).tolist() == [0, 1, 3, 4]


def test_krum_takes_rows_that_are_not_touched_as_zeros() -> None:
    """Clients touch row 0, row 1, row 0 and row 3: (1, 0), (·, 1), (1.5, 0), (·, ·, ·, 9), of distances

    0–1: 2, 0–2: 0.25, 0–3: 82, 1–2: 3.25, 1–3: 82, 2–3: 83.25; one nearest other each: 0.25, 2, 0.25, 82.
    """
    rows = double([1, 0], [1, 0], [1.5, 0], [9, 0])
    upload = Upload(
        torch.tensor([0, 1, 0, 3]),
        torch.ones(4, dtype=torch.int64),
        {"items": rows, "scale": torch.zeros(4, 1, dtype=torch.float64)},
    )
    totals = Totals(LEAVES, 4, CPU)
    assert krum(upload, totals, 1, 1).tolist() == [0]
    assert krum(upload, totals, 1, 3).tolist() == [0, 1, 2]


def outcome(name: str, options: dict, upload: Upload, order: list[int], sizes: np.ndarray) -> torch.Tensor:
    """The next shared state, the clients arriving in that order, in two groups."""
    method = build(name, options | {"embedding_size": 2}, ["robust"])
    server = Server(method, {"items": SHARED["items"]}, 4, CPU)
    for part in (order[:2], order[2:]):
        group = upload.take(torch.tensor(part), LEAVES)
        server.add(
            np.array(part),
            sizes[part],
            Upload(group.rows, group.row_counts, {"items": group.changes["items"]}),
        )
    return server.conclude({}, method.context(0, 4))["items"]


@pytest.mark.parametrize("defence", DEFENCES)
@given(order=st.permutations(range(5)))
def test_the_order_of_clients_does_not_show(defence: str, order: list[int]) -> None:
    name = "fedrecon" if defence == "weight-bound" else "fedmf"
    sizes = np.array([3, 1, 4, 1, 2])
    one, two = (outcome(name, {"robust": defence}, UPLOAD, each, sizes) for each in (order, list(range(5))))
    assert torch.equal(one, two)


@pytest.mark.parametrize(
    "options",
    [
        {"robust": "norm-bound", "bound": 1e9},
        {"robust": "row-cap", "bound": 1e9},
        {"robust": "trimmed-mean", "trim": 0},
        {"robust": "trimmed-mean", "trim": 0, "over": "all"},
        {"robust": "multi-krum", "suspected": 0},
    ],
    ids=str,
)
def test_where_nothing_is_mistrusted_it_is_the_mean(options: dict) -> None:
    """Rows 0 to 2: sums (110, −86), (6, 4), (7, 7), over all five clients."""
    found = outcome("fedmf", options, UPLOAD, list(range(5)), np.ones(5, dtype=np.int64))
    wanted = [[22, -17.2], [1.2, 0.8], [1.4, 1.4], [0, 0]]
    torch.testing.assert_close(found, double(*wanted), rtol=1e-12, atol=1e-12)


VALUES = st.floats(-100, 100)


@given(
    honest=st.lists(VALUES, min_size=4, max_size=20),
    lies=st.lists(st.floats(-1e12, 1e12), max_size=4),
    trim=st.sampled_from([0.2, 0.3, 0.5]),
)
def test_few_liars_cannot_leave_the_honest_range(honest: list, lies: list, trim: float) -> None:
    everybody = honest + lies
    n = len(everybody)
    allowed = min(int(trim * n + 1e-9), (n - 1) // 2)
    found = float(trimmed_mean(double(*everybody)[None, :, None], torch.tensor([n]), trim))
    if len(lies) <= allowed:
        assert min(honest) - 1e-9 <= found <= max(honest) + 1e-9


@given(st.lists(VALUES, min_size=1, max_size=15))
def test_half_trimmed_is_the_median(values: list[float]) -> None:
    found = float(trimmed_mean(double(*values)[None, :, None], torch.tensor([len(values)]), 0.5))
    assert found == pytest.approx(float(np.median(values)), rel=1e-12, abs=1e-12)


def test_small_pieces_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sums(0.2, "touching"), sums(0.2, "all"), krum(UPLOAD, Totals(LEAVES, 4, CPU), 1, 2).tolist()
    monkeypatch.setattr("solera.math.robust._NUMBERS", 1)
    assert whole == (
        sums(0.2, "touching"),
        sums(0.2, "all"),
        krum(UPLOAD, Totals(LEAVES, 4, CPU), 1, 2).tolist(),
    )


def test_a_client_is_not_believed_more_items_than_there_are() -> None:
    """Claims 1 and 10⁹ of a catalogue of 4: weights 1 and 4; believed, the second would be all there is."""
    method = build("fedrecon", {"embedding_size": 2})
    upload = Upload(torch.tensor([0, 0]), torch.tensor([1, 1]), {"items": double([5, 0], [0, 5])})
    claims = np.array([1, 10**9])

    def after(heaviest: float | None) -> list[float]:
        server = Server(method, {"items": SHARED["items"]}, 4, CPU, heaviest=heaviest)
        server.add(np.arange(2), claims, upload)
        return server.conclude({}, method.context(0, 4))["items"][0].tolist()

    assert after(None) == pytest.approx([1, 4])
    assert after(float("inf")) == pytest.approx([0, 5], abs=1e-7)


def test_weight_bound_by_hand() -> None:
    """Weights 1, 1, 3 are at most the median's 1: the row is (1 + 2 + 6) / 3."""
    method = build("fedrecon", {"embedding_size": 2, "robust": "weight-bound"}, ["robust"])
    server = Server(method, {"items": SHARED["items"]}, 4, CPU)
    upload = Upload(torch.zeros(3).long(), torch.ones(3).long(), {"items": double([1, 0], [2, 0], [6, 0])})
    server.add(np.arange(3), np.array([1, 1, 3]), upload)
    assert server.conclude({}, method.context(0, 4))["items"][0].tolist() == pytest.approx([3, 0])


def test_it_sees_single_uploads_and_says_so() -> None:
    for plugins in (["robust"], ["server-optimizer", "robust"]):
        method = build("fedmf", {}, plugins)
        assert method.aggregate.does("sift")
        assert method.aggregate.needs_single_uploads
        assert not method.sums_alone
    assert not build("fedmf").aggregate.needs_single_uploads
    assert build("fedem").aggregate.needs_single_uploads


@pytest.mark.parametrize("name", ["local", "colr", "gpfedrec", "fedem"])
def test_only_means_are_defended(name: str) -> None:
    with pytest.raises(ConfigError, match="does not take the mean"):
        build(name, {}, ["robust"])


def test_weights_are_bounded_where_there_are_any() -> None:
    with pytest.raises(ConfigError, match="have the same weight"):
        build("fedmf", {"robust": "weight-bound"}, ["robust"])
