"""Rows that are divided among ranks: whoever asks gets the right ones, and owners get what is theirs."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.engine.row_owners import RowOwners
from threaded_ranks import on_ranks

SOME_ITEMS = st.lists(st.sets(st.integers(0, 16)), min_size=1, max_size=4)  # of every rank


def table(n_items: int) -> torch.Tensor:
    """Row i is (10 i, 10 i + 1)."""
    return torch.arange(n_items)[:, None] * 10.0 + torch.arange(2)


def tensor(items: set[int]) -> torch.Tensor:
    return torch.tensor(sorted(items), dtype=torch.int64)


@settings(max_examples=15)
@given(asked=SOME_ITEMS, n_items=st.integers(17, 20))
def test_a_rank_fetches_the_rows_it_asks_for(asked, n_items):
    whole = table(n_items)

    def work(ranks):
        owners = RowOwners(ranks, n_items)
        own = whole[owners.own.start : owners.own.stop]
        return owners.own, owners.fetched(tensor(asked[ranks.rank]), {"a": own, "b": -own})

    found = on_ranks(len(asked), work)
    assert [item for own, _ in found for item in own] == list(range(n_items))
    for items, (_, rows) in zip(asked, found, strict=True):
        assert torch.equal(rows["a"], whole[tensor(items)])
        assert torch.equal(rows["b"], -whole[tensor(items)])


@settings(max_examples=15)
@given(sent=SOME_ITEMS)
def test_owners_receive_all_that_is_sent_for_their_rows(sent):
    """Every rank sends its number + 1 for each of its items; the owners add."""

    def work(ranks):
        owners = RowOwners(ranks, 17)
        items = tensor(sent[ranks.rank])
        rows, values = owners.delivered(items, {"a": torch.full((len(items), 1), ranks.rank + 1.0)})
        return torch.zeros(len(owners.own), 1).index_add_(0, rows, values["a"])

    total = torch.cat(on_ranks(len(sent), work))[:, 0].tolist()
    assert total == [sum(rank + 1 for rank, items in enumerate(sent) if item in items) for item in range(17)]


@given(size=st.integers(1, 4), n_items=st.integers(1, 9), rows=st.integers(1, 4))
@settings(max_examples=15)
def test_all_ranks_see_every_row_once_and_the_first_collects_them(size, n_items, rows):
    whole = table(n_items)

    def work(ranks):
        owners = RowOwners(ranks, n_items)
        own = whole[owners.own.start : owners.own.stop]
        seen = list(owners.slices({"a": own}, rows))
        assert all(len(items) == len(shown["a"]) <= rows for items, shown in seen)
        collected = list(owners.collected(own, rows))
        assert all(len(piece) <= rows for piece in collected)
        return [item for items, _ in seen for item in items], [each["a"] for _, each in seen], collected

    for rank, (items, shown, collected) in enumerate(on_ranks(size, work)):
        assert items == list(range(n_items))
        assert torch.equal(torch.cat(shown), whole)
        assert torch.equal(torch.cat(collected), whole) if rank == 0 else not collected
