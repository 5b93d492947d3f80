"""Whole rounds: exact sums whoever drops out when, and nothing below the threshold."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.privacy.identity import Identity
from solera.privacy.secagg import (
    Client,
    Part,
    SecAggError,
    Stage,
    make_setup,
    new_identity,
    run_round,
)

N, T = 20, 14
PARTS = [
    Part(name="rows", length=30, clip=4, fraction_bits=16),
    Part(name="weight", length=1, clip=1000, fraction_bits=0),
]
STAGES = list(Stage)[:5]


def secure_sum(inputs, threshold, dropouts=None, *, clip=8.0, fraction_bits=16, bits=32, identities=None):
    """The sum of the vectors of all that have sent theirs before they dropped out (at stage 3 or later)."""
    keys = identities or [new_identity() for _ in inputs]
    part = Part(name="values", length=len(inputs[0]), clip=clip, fraction_bits=fraction_bits)
    setup = make_setup(keys, threshold, [part], bits=bits)
    return run_round(setup, keys, [{"values": each} for each in inputs], dropouts).total["values"]


def values(seed: int) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [{"rows": rng.normal(size=(6, 5)), "weight": [int(rng.integers(1, 1000))]} for _ in range(N)]


def encoded_sum(setup, inputs, clients):
    """By another way: the sum of what each client's values are rounded to, in plain floats."""
    ulp = 2.0**-16
    rows = sum(np.rint(np.clip(inputs[c]["rows"], -4, 4) / ulp) * ulp for c in clients)
    return {"rows": rows.ravel(), "weight": [sum(inputs[c]["weight"][0] for c in clients)]}


def check(setup, inputs, dropouts, outcome):
    survivors = [c for c in range(N) if dropouts.get(c, Stage.DONE) > Stage.MASK]
    assert list(outcome.survivors) == survivors
    wanted = encoded_sum(setup, inputs, survivors)
    for name, total in outcome.total.items():
        assert total.tolist() == list(wanted[name])
    assert outcome.refused == {}


@given(
    st.lists(st.lists(st.floats(-8, 8), min_size=4, max_size=4), min_size=3, max_size=6),
    st.sampled_from([32, 64]),
)
@settings(max_examples=15)
def test_the_sum_is_exact_to_the_encoding(identities, inputs, bits):
    n = len(inputs)
    found = secure_sum(inputs, n // 2 + 1, bits=bits, fraction_bits=20, identities=identities[:n])
    wanted = np.sum([np.rint(np.array(each) * 2**20) for each in inputs], axis=0) / 2**20
    assert found.tolist() == wanted.tolist()
    assert np.abs(found - np.sum(inputs, axis=0)).max() <= n / 2 * 2**-20 + 1e-13


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 40))]
)
def test_any_six_of_twenty_may_drop_out_at_any_stage(identities, seed):
    rng = np.random.default_rng(seed)
    dropouts = {int(c): Stage(int(rng.integers(5))) for c in rng.choice(N, 6, replace=False)}
    setup, inputs = make_setup(identities, T, PARTS), values(seed)
    check(setup, inputs, dropouts, run_round(setup, identities, inputs, dropouts))


@pytest.mark.parametrize("stage", STAGES)
def test_six_may_drop_out_at_once(identities, stage):
    dropouts = dict.fromkeys((0, 3, 4, 11, 18, 19), stage)
    setup, inputs = make_setup(identities, T, PARTS, bits=64), values(1)
    check(setup, inputs, dropouts, run_round(setup, identities, inputs, dropouts))


@pytest.mark.parametrize("stage", STAGES)
def test_with_seven_dropped_out_the_round_ends(identities, stage):
    """At whatever stage: an error, and no client has given shares after a stage that too few have seen."""
    dropouts = dict.fromkeys((0, 1, 2, 3, 9, 18, 19), stage)
    setup = make_setup(identities, T, PARTS)
    steps: list[Any] = []
    with pytest.raises(SecAggError, match=f"only 13 clients .* {stage.name.lower()}"):
        run_round(setup, identities, values(2), dropouts, on_step=steps.append)
    assert max(step.stage for step in steps) == stage
    assert (stage, None) not in {(step.stage, step.client) for step in steps}


def test_identities_of_all_kinds_in_one_round():
    """New nodes have P-256, older ones P-384; without a deployment, Ed25519 does."""
    keys: list[Identity] = [
        new_identity(),
        new_identity(),
        generate_private_key(SECP384R1()),
        Ed25519PrivateKey.generate(),
    ]
    inputs = [np.full(3, c + 0.5) for c in range(4)]
    assert secure_sum(inputs, 3, {2: Stage.MASK}, identities=keys).tolist() == [5.5] * 3
    assert secure_sum(inputs, 3).tolist() == [8.0] * 3


@pytest.mark.parametrize("dropped_at", [None, Stage.SHARE, Stage.MASK, Stage.CONFIRM, Stage.UNMASK])
def test_a_client_may_be_saved_and_loaded_before_every_message(identities, dropped_at):
    dropouts = {} if dropped_at is None else dict.fromkeys((2, 5), dropped_at)
    setup, inputs = make_setup(identities, T, PARTS), values(3)
    saved = []

    def between(client, identity):
        saved.append(client.save())
        return Client.load(saved[-1], identity)

    outcome = run_round(setup, identities, inputs, dropouts, between=between)
    check(setup, inputs, dropouts, outcome)
    assert len(saved) >= 5 * 18


def test_a_mean_by_weight_from_two_sums(identities):
    """Each sends weight · values, and the weight beside it."""
    rng = np.random.default_rng(0)
    weights, rows = rng.integers(1, 100, N), rng.uniform(-1, 1, (N, 7))
    parts = [
        Part(name="weighted", length=7, clip=100, fraction_bits=18),
        Part(name="weight", length=1, clip=100, fraction_bits=0),
    ]
    inputs = [{"weighted": w * row, "weight": [w]} for w, row in zip(weights, rows, strict=True)]
    total = run_round(make_setup(identities, T, parts), identities, inputs).total
    assert total["weight"].tolist() == [weights.sum()]
    mean = total["weighted"] / total["weight"]
    assert np.allclose(mean, np.average(rows, axis=0, weights=weights), atol=N / 2 * 2**-18 / weights.sum())


def test_secrets_are_forgotten_once_they_are_not_needed(identities):
    setup, inputs = make_setup(identities, T, PARTS), values(4)
    seen = {}

    def between(client, identity):
        seen[client.stage] = client._state.model_copy(deep=True)
        return client

    run_round(setup, identities, inputs, between=between)
    assert seen[Stage.MASK].seed and seen[Stage.MASK].mask_secret
    after = seen[Stage.CONFIRM]
    assert (after.seed, after.mask_secret, after.box_secret) == (b"", b"", b"")


def test_no_clear_value_leaves_a_client(identities):
    """Weights neither: whatever is sent of them, is under a mask.

    Looked for are 16 bytes of each: fewer would turn up by chance once in some thousand rounds.
    """
    parts = [PARTS[0], Part(name="weight", length=4, clip=1000, fraction_bits=0)]
    setup = make_setup(identities, T, parts)
    steps: list[Any] = []
    inputs: list[dict[str, Any]] = [{"rows": np.zeros(30), "weight": [777] * 4} for _ in range(N)]
    run_round(setup, identities, inputs, on_step=steps.append)
    clear = setup.encoding.encode(inputs[0])
    sent = [m for step in steps if step.client is not None for m in step.sent]
    assert len(sent) == 5 * N
    for secret in (clear[:4].tobytes(), clear[-4:].tobytes()):
        assert len(secret) == 16
        assert not any(secret in message for message in sent)


@pytest.mark.parametrize("threshold", [0, 1, 10, 21])
def test_a_threshold_must_be_more_than_half(identities, threshold):
    with pytest.raises(SecAggError, match="more than half"):
        make_setup(identities, threshold, PARTS)


def test_parameters_that_could_wrap_are_refused(identities):
    with pytest.raises(SecAggError, match="could exceed"):
        secure_sum([np.zeros(2)] * 20, 14, clip=2**12, fraction_bits=16, identities=identities)


def test_it_needs_no_torch():
    code = "import sys, solera.privacy.secagg; print(*{'torch', 'flwr', 'polars'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
