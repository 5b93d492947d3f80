from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solera.core.randomness import Purpose, Streams, below, client_keys, draws, generator, mix

GOLDEN = 0x9E3779B97F4A7C15
# The published first outputs of SplitMix64 from the state 1234567.
KNOWN = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]
# 99.9 % points of the chi-square distribution: the draws are fixed, so a test either always passes or never.
CHI_SQUARE = {6: 22.46, 9: 27.88, 255: 330.52}


def chi_square(values: np.ndarray, cells: int) -> float:
    counts = np.bincount(values, minlength=cells)
    expected = len(values) / cells
    return float(((counts - expected) ** 2 / expected).sum())


def test_mix_gives_the_published_sequence() -> None:
    states = np.array([(1234567 + k * GOLDEN) % 2**64 for k in range(1, 6)], dtype=np.uint64)
    assert mix(states).tolist() == KNOWN


def test_draws_are_splitmix64_with_the_key_as_its_state() -> None:
    key = np.array([1234567], dtype=np.uint64)
    assert draws(key, np.array([5])).tolist() == KNOWN


def test_mix_leaves_its_input_alone() -> None:
    states = np.arange(3, dtype=np.uint64)
    mix(states)
    assert states.tolist() == [0, 1, 2]


@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    cuts=st.sets(st.integers(0, 12)),
    order=st.randoms(use_true_random=False),
)
def test_a_clients_draws_do_not_depend_on_its_company(counts, cuts, order) -> None:
    clients = np.arange(len(counts)) * 7
    number = dict(zip(clients.tolist(), counts, strict=True))
    alone = {c: draws(_keys(np.array([c])), np.array([number[c]])).tolist() for c in number}
    shuffled = clients.tolist()
    order.shuffle(shuffled)
    for group in np.split(np.array(shuffled), sorted(cut for cut in cuts if cut < len(counts))):
        lengths = np.array([number[c] for c in group.tolist()], dtype=np.int64)
        together = draws(_keys(group), lengths).tolist()
        assert together == [bits for c in group.tolist() for bits in alone[c]]


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_next_continues_every_stream(counts) -> None:
    each = np.array(counts)
    keys = _keys(np.arange(len(each)))
    whole = np.split(draws(keys, 3 * each), np.cumsum(3 * each)[:-1])
    streams = Streams(keys, each)
    parts = [np.split(streams.next(), np.cumsum(each)[:-1]) for _ in range(3)]
    for client, expected in enumerate(whole):
        assert expected.tolist() == [bit for part in parts for bit in part[client].tolist()]


def test_nobody_draws_nothing() -> None:
    nobody = np.array([], dtype=np.int64)
    assert len(draws(_keys(nobody), nobody)) == 0


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 1682, 2**31 - 1, 2**31, 2**40 + 1])
def test_below_reaches_both_ends_and_never_the_bound(bound: int) -> None:
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert below(ends, np.array([bound, bound])).tolist() == [0, bound - 1]


@pytest.mark.parametrize("bound", [7, 10, 256])
def test_below_is_uniform(bound: int) -> None:
    """Within one stream, and over the first draws of many clients: neighbouring keys must not correlate."""
    n = 100 * bound
    stream = draws(_keys(np.array([3])), np.array([n]))
    across = draws(_keys(np.arange(n)), np.ones(n, dtype=np.int64))
    for bits in (stream, across):
        assert chi_square(below(bits, np.full(n, bound)), bound) < CHI_SQUARE[bound - 1]


def test_each_draw_has_its_own_bound() -> None:
    bits = np.full(3, 2**63, dtype=np.uint64)
    assert below(bits, np.array([2, 10, 100])).tolist() == [1, 5, 50]


def test_streams_differ_by_seed_purpose_round_and_client() -> None:
    keys = [
        int(key)
        for seed in (0, 1, 12345)
        for purpose in Purpose
        for round_ in range(5)
        for key in client_keys(seed, purpose, round_, np.arange(50))
    ]
    assert len(set(keys)) == len(keys) == 3 * len(Purpose) * 5 * 50


def test_neighbouring_streams_share_no_draws() -> None:
    """No stream is another one shifted: 200 draws of each of 50 clients in 2 rounds are all different."""
    bits = [draws(client_keys(0, Purpose.SHUFFLE, r, np.arange(50)), np.full(50, 200)) for r in range(2)]
    assert len(np.unique(np.concatenate(bits))) == 2 * 50 * 200


def test_keys_are_part_of_every_saved_run() -> None:
    """Frozen: a change of these numbers makes every earlier run irreproducible."""
    assert [int(p) for p in Purpose] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    got = client_keys(42, Purpose.NEGATIVES, 3, np.array([0, 1, 942]))
    assert got.tolist() == [17514059491103141977, 6827154621608418919, 13830167746048579809]


def test_generator_differs_by_seed_purpose_and_path() -> None:
    paths: list[Any] = [
        (s, p, *path) for s in (0, 1) for p in Purpose for path in [(), (0,), (1,), (0, 1), (1, 0)]
    ]
    firsts = [generator(seed, purpose, *path).integers(2**63) for seed, purpose, *path in paths]
    assert len(set(firsts)) == len(paths)
    assert firsts == [generator(seed, purpose, *path).integers(2**63) for seed, purpose, *path in paths]


def _keys(clients: np.ndarray) -> np.ndarray:
    return client_keys(0, Purpose.NEGATIVES, 2, clients)
