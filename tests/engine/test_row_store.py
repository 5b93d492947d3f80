"""Rows of many clients in segments: what was put is found again, and little more than the rows is stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.engine.row_store import RowStore

CPU = torch.device("cpu")
N, D = 8, 3


def rows(draw: np.random.Generator, clients: torch.Tensor, n_items: int = 50) -> tuple[torch.Tensor, ...]:
    lists = [np.sort(draw.choice(n_items, draw.integers(1, 9), replace=False)) for _ in clients]
    counts = torch.tensor([len(each) for each in lists])
    items = torch.from_numpy(np.concatenate(lists))
    return items, counts, torch.from_numpy(draw.normal(size=(len(items), D)))


@given(puts=st.lists(st.sets(st.integers(0, N - 1), min_size=1), max_size=25), merging=st.booleans())
def test_rows_are_the_last_put(puts, merging):
    """Against a dictionary of dictionaries. Packing happens on the way."""
    draw, store = np.random.default_rng(0), RowStore(N, CPU)
    plain: dict[int, dict[int, list[float]]] = {}
    for some in puts:
        clients = torch.tensor(sorted(some, reverse=len(some) % 2 == 0))
        items, counts, values = rows(draw, clients)
        if merging:
            store.merge(clients, items, counts, values, 50)
        else:
            store.put(clients, items, counts, values)
        begin = 0
        for client, count in zip(clients.tolist(), counts.tolist(), strict=True):
            mine = dict(zip(items[begin:][:count].tolist(), values[begin:][:count].tolist(), strict=True))
            plain[client] = plain.get(client, {}) | mine if merging else mine
            begin += count
    assert sorted(plain) == list(store)
    for client, expected in plain.items():
        found = store[client]
        assert found.items.tolist() == sorted(expected)
        assert found.values.tolist() == [expected[item] for item in sorted(expected)]
    saved = store.tensors()
    for part, value in store.writable().items():
        assert tuple(value.shape) == tuple(saved[part].shape)
        pieces = [value] if isinstance(value, torch.Tensor) else list(value)
        assert torch.equal(torch.cat(pieces), saved[part])
    everybody = store.take(torch.arange(N))
    assert everybody.counts.tolist() == [len(plain.get(client, {})) for client in range(N)]


@pytest.mark.parametrize(
    ("n", "mapped"),
    [
        (100_000, False),
        (100_000, True),
        pytest.param(1_000_000, False, marks=pytest.mark.slow),
        pytest.param(1_000_000, True, marks=pytest.mark.slow),
    ],
)
def test_many_clients_cost_little_more_than_their_values(n, mapped):
    """Twice all clients, then a tenth of them, ten times: never above 1.2 times the bytes of the values."""
    each, width = 10, 32
    store, draw = RowStore(n, CPU, 0 if mapped else 2**40), np.random.default_rng(1)
    for part in [*np.split(np.arange(n), 20), *np.split(np.arange(n), 20)]:
        put(store, part, each, width, 1.0)
    held = n * each * width * 4
    assert store.nbytes <= 1.2 * held
    copy = store.copy()
    for value in range(10):
        put(store, np.sort(draw.choice(n, n // 10, replace=False)), each, width, float(value))
        assert store.nbytes <= 1.2 * held
    last = np.sort(draw.choice(n, 50, replace=False))
    put(store, last, each, width, 77.0)
    assert (store.take(torch.from_numpy(last)).values == 77).all()
    assert (copy.take(torch.from_numpy(last)).values == 1).all()


def put(store: RowStore, clients: np.ndarray, each: int, width: int, value: float) -> None:
    items = torch.arange(each).repeat(len(clients))
    counts = torch.full((len(clients),), each)
    store.put(torch.from_numpy(clients), items, counts, torch.full((len(items), width), value))
