"""What the server sees, tested for chance: with all values 0, any pattern would be a leak."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solera.privacy.secagg import Part, Stage, make_setup, rules, run_round, shamir
from solera.privacy.secagg import client as client_module
from solera.privacy.secagg import messages as m
from solera.privacy.secagg.primitives import mask

N, T, LENGTH = 6, 4, 1 << 16
LIMIT = 6.0  # standard deviations: chance exceeds it once in 10^9


def deviations(data: bytes) -> dict[str, float]:
    """How many standard deviations the bytes are from random ones, by three tests."""
    values = np.frombuffer(data, np.uint8)
    counts = np.bincount(values, minlength=256)
    expected = len(values) / 256
    chi_square = ((counts - expected) ** 2).sum() / expected
    bits = np.unpackbits(values)
    centred = values - 127.5
    serial = (centred[1:] * centred[:-1]).sum() / (256**2 - 1) * 12
    return {
        "histogram": abs(chi_square - 255) / np.sqrt(2 * 255),
        "monobit": abs(2 * float(bits.sum()) - len(bits)) / np.sqrt(len(bits)),
        "serial": abs(serial) / np.sqrt(len(values) - 1),
    }


def server_view(identities, dropouts=None):
    """What the server holds in the end: vectors as they came, and without the self masks it has learned."""
    part = Part(name="x", length=LENGTH, clip=1, fraction_bits=20)
    setup = make_setup(identities[:N], T, [part])
    steps: list[Any] = []
    outcome = run_round(setup, identities[:N], [{"x": np.zeros(LENGTH)}] * N, dropouts, on_step=steps.append)
    vectors, reveals, boxes = {}, {}, []
    for step in steps:
        if step.client is not None and step.stage is Stage.SHARE:
            boxes += [box for _, box in m.SealedShares.from_bytes(step.sent[0], setup.context).entries]
        if step.client is not None and step.stage is Stage.MASK:
            sent = m.MaskedInput.from_bytes(step.sent[0], setup.context)
            vectors[step.client] = np.frombuffer(sent.vector, setup.encoding.dtype)
        if step.client is not None and step.stage is Stage.UNMASK:
            reveals[step.client] = m.Reveal.from_bytes(step.sent[0], setup.context)
    helpers = sorted(reveals)[:T]
    weights = shamir.weights([c + 1 for c in helpers])
    bare = {}
    for client, vector in vectors.items():
        seed = shamir.combine(weights, {c + 1: dict(reveals[c].seeds)[client] for c in helpers})
        bare[client] = vector.copy()
        mask(bare[client], rules.self_mask(setup, seed, client), subtract=True)
    return outcome, vectors, bare, boxes


def worst(vectors) -> float:
    return max(max(deviations(vector.tobytes()).values()) for vector in vectors)


def test_the_tests_know_random_bytes_from_others():
    rng = np.random.default_rng(0)
    assert worst([rng.integers(0, 1 << 32, LENGTH, dtype=np.uint32)]) < LIMIT
    biased = (rng.random((4 * LENGTH, 8)) < 0.51).astype(np.uint8)
    assert deviations(np.packbits(biased).tobytes())["monobit"] > LIMIT
    small = rng.integers(0, 250, 4 * LENGTH, dtype=np.uint8)
    assert deviations(small.tobytes())["histogram"] > LIMIT
    walk = np.cumsum(rng.integers(0, 60, 4 * LENGTH)).astype(np.uint8)
    assert deviations(walk.tobytes())["serial"] > LIMIT


@pytest.mark.parametrize("dropouts", [{}, {2: Stage.MASK, 4: Stage.CONFIRM}])
def test_all_that_the_server_sees_looks_random_but_the_sum(identities, dropouts):
    outcome, vectors, bare, boxes = server_view(identities, dropouts)
    assert not outcome.total["x"].any()
    assert worst(vectors.values()) < LIMIT
    assert max(deviations(b"".join(boxes)).values()) < LIMIT
    assert worst(bare.values()) < LIMIT  # though the server has learned the self masks
    clients = sorted(bare)
    for left_out in clients:  # sums of some are as hidden as one
        assert worst([sum(bare[c] for c in clients if c != left_out)]) < LIMIT
    assert worst([bare[a] - bare[b] for a in clients for b in clients if a < b]) < LIMIT


def test_without_masks_the_tests_see_it(identities, monkeypatch):
    """The same tests, on a client that masks nothing: what they have to find."""
    monkeypatch.setattr(client_module, "mask", lambda *_, **__: None)
    _, vectors, _, _ = server_view(identities)
    assert min(max(deviations(vector.tobytes()).values()) for vector in vectors.values()) > 1000


def test_without_pair_masks_the_tests_see_it(identities, monkeypatch):
    """Self masks alone look random on the way, but the server learns them."""
    monkeypatch.setattr(rules, "pair_mask", lambda *_: None)
    real = mask
    monkeypatch.setattr(
        client_module, "mask", lambda values, key, **sign: None if key is None else real(values, key, **sign)
    )
    _, vectors, bare, _ = server_view(identities)
    assert worst(vectors.values()) < LIMIT
    assert worst(bare.values()) > 1000


def test_masks_are_new_every_time(identities):
    """The same values twice: what differs between two rounds looks random too."""
    _, first, _, _ = server_view(identities)
    _, second, _, _ = server_view(identities)
    assert worst([first[c] - second[c] for c in first]) < LIMIT
