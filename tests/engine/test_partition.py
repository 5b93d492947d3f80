from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solera.engine.block import partition

SAMPLES = st.lists(st.integers(1, 200), max_size=60)


@given(
    samples=SAMPLES,
    batch_size=st.integers(1, 250),
    block_samples=st.integers(1, 1000),
    whole=st.integers(0, 5),
)
def test_every_client_once_in_lockstep_and_in_blocks_of_about_the_size_asked_for(
    samples, batch_size, block_samples, whole
) -> None:
    """A block is cut once it is full: it exceeds the size by less than one client, and only the last block
    of a kind may miss it by more than one client. Up to `whole` steps a kind is a number of steps.
    """
    sizes = np.array(samples, dtype=np.int64)
    blocks = partition(sizes, batch_size, block_samples, whole)
    assert sorted(client for block in blocks for client in block.tolist()) == list(range(len(samples)))
    kinds = [{min(-(-samples[client] // batch_size), whole + 1) for client in block} for block in blocks]
    assert all(len(each) == 1 for each in kinds)
    last = {kind: place for place, (kind,) in enumerate(kinds)}
    for place, block in enumerate(blocks):
        assert (np.diff(sizes[block]) <= 0).all()  # the plan counts on the largest coming first
        mine, largest = sizes[block].sum(), sizes[block].max()
        assert mine < block_samples + largest
        (kind,) = kinds[place]
        if place != last[kind]:
            assert mine + sizes[blocks[place + 1]].max() >= block_samples


def test_size_1_is_one_client_each() -> None:
    assert sorted(map(list, partition(np.array([5, 3, 5, 9]), 4, 1, 3))) == [[0], [1], [2], [3]]


def test_without_limit_there_is_one_block_per_kind() -> None:
    """Batches of 4: samples 1 to 4 take one step, 5 to 8 two, 9 three; 13 and more go together."""
    blocks = partition(np.array([9, 5, 1, 4, 8, 13, 40]), 4, 10**9, 3)
    assert [block.tolist() for block in blocks] == [[6, 5], [0], [4, 1], [3, 2]]


def test_nobody() -> None:
    assert partition(np.array([], dtype=np.int64), 4, 100, 3) == []
