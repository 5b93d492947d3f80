"""Simulated sums are those that the protocol gives, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.core.errors import ConfigError
from solera.core.fixed_point import CLIP, FixedPoint, change, lengths
from solera.core.protection import Chain
from solera.core.upload import Totals, Upload
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation
from solera.federation.secure.masked import encoding_of, sums_of, values_of
from solera.methods import build, find, names
from solera.privacy.secagg import make_setup, new_identity, run_round

ITEMS, CPU = 12, torch.device("cpu")
KNOWN = Ragged.from_lists([[0, 1, 2], [2, 3], [5, 6, 7, 8], [1, 9]])


def simulation(method: str, *, secure: bool) -> Simulation:
    data = ClientData(KNOWN, KNOWN.sorted_unique(), ITEMS)
    built = build(method, {"embedding_size": 4, "clients_per_round": 1.0})
    return Simulation(
        built,
        data,
        BlockTraining(1),
        seed=3,
        device=CPU,
        dtype=torch.float64,
        protection=Chain(masked=secure),
    )


@pytest.mark.parametrize("method", ["fedmf", "plgc"])
def test_the_real_protocol_gives_the_same_sum(method):
    """Every client a party of its own, with keys, masks and shares; one drops out before it sends."""
    made = simulation(method, secure=True)
    n = len(KNOWN)
    fixed = FixedPoint.of(made.method, ITEMS, places=n)
    together = Totals(made.method.leaves, ITEMS, CPU, fixed)
    inputs: dict[int, Any] = {}
    sizes = KNOWN.lengths
    for result in made.train_clients(0, np.arange(n)):
        for place, client in enumerate(result.clients.tolist()):
            upload = result.upload.of_client(place, made.method.leaves)
            weight = torch.tensor([float(sizes[client])]) if made.method.aggregate.weighted else None
            alone = Totals(made.method.leaves, ITEMS, CPU)
            alone.add(upload.clipped(fixed.clip), weight)
            inputs[client] = values_of(made.method, ITEMS, alone, [0.0])
            if client != 2:
                together.add(upload, weight)
    encoding = encoding_of(made.method, ITEMS, fixed, members=n, capacity=1)
    keys = [new_identity() for _ in range(n)]
    setup = make_setup(keys, 3, encoding.parts, bits=encoding.bits)
    assert setup.encoding == encoding
    outcome = run_round(setup, keys, [inputs[client] for client in range(n)], {2: 2})
    assert outcome.survivors == (0, 1, 3)
    found, expected = sums_of(made.method, ITEMS, outcome.total, 1e9), together.sums()
    assert found.weight == expected.weight
    assert torch.equal(found.rows, expected.rows)
    assert torch.equal(found.row_weights, expected.row_weights)
    for name, values in expected.changes.items():
        assert torch.equal(found.changes[name], values), name


def test_a_round_differs_from_a_plain_one_by_rounding():
    plain, secure = simulation("fedmf", secure=False), simulation("fedmf", secure=True)
    for each in (plain, secure):
        each.run_round(0)
    difference = float((plain.state.shared["items"] - secure.state.shared["items"]).abs().max())
    fixed = FixedPoint.of(plain.method, ITEMS, places=4)
    assert 0 < difference <= 4 / 2 * 2.0**-fixed.fraction_bits / 4


@given(places=st.integers(2, 4096), users=st.integers(1, 1000), items=st.integers(1, 50_000))
def test_sums_never_wrap(places, users, items):
    """Of an unweighted and of a weighted method."""
    for method in (find("fedmf"), find("pfedclr")):
        fixed = FixedPoint.of(method, items, places=places, users=users)
        largest = places * fixed.largest * 2**fixed.fraction_bits
        assert largest <= (2**31 - 1 if fixed.bits == 32 else 2**53)
        assert 2 * largest > (2**31 - 1 if fixed.bits == 32 else 2**53)  # and no bit is left unused
        assert fixed.heaviest == users * (1 if method.name == "fedmf" else items)


def test_a_change_is_cut_off():
    method = find("fedmf", {"embedding_size": 1})
    fixed = FixedPoint.of(method, 1, places=2)
    totals = Totals(method.leaves, 1, CPU, fixed)
    for value in (1e9, -0.25):
        totals.add(Upload(torch.tensor([0]), torch.tensor([1]), {"items": torch.tensor([[value]])}))
    assert float(totals.leaf("items").change) == CLIP - 0.25


def test_lengths():
    method = find("fedmf", {"embedding_size": 4})
    assert lengths(method, 10) == {change("items"): 40, "row_weights": 10, "weight": 1, "users": 1}
    assert lengths(find("fedease"), 10) == {"sum/gram/0/0": 55, "users": 1}
    assert lengths(find("fedease", {"sketch": 3}), 10) == {"sum/sketch/0/0": 30, "users": 1}


@pytest.mark.parametrize("name", names())
def test_methods_say_whether_they_can(name):
    method = find(name)
    if name.startswith(("fedem", "gpfedrec", "pfedgraph", "fedfast", "perfedrec")):
        with pytest.raises(ConfigError, match="single clients' uploads"):
            FixedPoint.of(method, 10, places=3)
    else:
        assert FixedPoint.of(method, 10, places=3).bits in {32, 64}
