from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.core.method import Method
from solera.engine import store as stores
from solera.engine.store import PersonalStore, TouchedRows, stored_by_rows
from solera.methods import build

N_CLIENTS, N_ITEMS = 4, 6


ROWS, TABLES = 0, 1 << 20  # bytes up to which a personal table stands as it is
FORMS = pytest.mark.parametrize("form", [ROWS, TABLES], ids=["rows", "tables"])


def store_of(name: str, form: int = ROWS) -> tuple[Method, PersonalStore]:
    method = build(name, {"embedding_size": 2})
    with patch.object(stores, "TABLE_BYTES", form):
        return method, PersonalStore(
            method,
            initial(method, seed=0),
            N_CLIENTS,
            N_ITEMS,
            by_rows=stored_by_rows(method, N_CLIENTS, N_ITEMS, torch.float32),
        )


def initial(method: Method, seed: int) -> dict[str, torch.Tensor]:
    return {leaf.name: leaf.initial(N_ITEMS, seed).float() for leaf in method.leaves}


def rows(*items: int) -> torch.Tensor:
    return torch.tensor(items, dtype=torch.int64)


def filled(items: torch.Tensor, value: float) -> torch.Tensor:
    return torch.full((len(items), 2), float(value))


@pytest.fixture(params=[ROWS, TABLES], ids=["rows", "tables"])
def personal(request: pytest.FixtureRequest) -> PersonalStore:
    """A personal table: "items" of Local."""
    return store_of("local", request.param)[1]


@pytest.fixture
def kept() -> PersonalStore:
    """Shared rows kept after fine-tuning: "items" of PFedRec."""
    return store_of("pfedrec")[1]


def put(store: PersonalStore, client: int, items: torch.Tensor, value: float) -> None:
    store.put("items", group(client, items), filled(items, value))


def get(store: PersonalStore, client: int, items: torch.Tensor) -> torch.Tensor:
    return store.get("items", group(client, items))


def group(client: int, items: torch.Tensor) -> TouchedRows:
    return TouchedRows(np.array([client]), items, torch.tensor([len(items)]))


@FORMS
def test_everybody_starts_alike(form: int) -> None:
    method, store = store_of("local", form)
    start = initial(method, seed=0)
    for client in range(N_CLIENTS):
        assert torch.equal(store.whole["user"][client], start["user"])
        assert torch.equal(get(store, client, rows(0, 5)), start["items"][[0, 5]])


def test_whole_leaves(personal: PersonalStore) -> None:
    before = personal.whole["user"].clone()
    personal.whole["user"][rows(3, 1)] = torch.tensor([[3.0, 3], [1, 1]])
    assert personal.whole["user"][[1, 3]].tolist() == [[1, 1], [3, 3]]
    assert torch.equal(personal.whole["user"][[0, 2]], before[[0, 2]])


def test_personal_rows_grow(personal: PersonalStore) -> None:
    start = get(personal, 0, torch.arange(N_ITEMS))
    put(personal, 0, rows(1, 4), 1)
    put(personal, 0, rows(0, 4), 2)
    got = get(personal, 0, torch.arange(N_ITEMS))
    assert got[[0, 1, 4]].tolist() == [[2, 2], [1, 1], [2, 2]]
    assert torch.equal(got[[2, 3, 5]], start[[2, 3, 5]])
    assert torch.equal(get(personal, 1, torch.arange(N_ITEMS)), start)


def test_kept_rows_are_replaced(kept: PersonalStore) -> None:
    base = torch.zeros(N_ITEMS, 2)
    put(kept, 0, rows(1, 4), 1)
    put(kept, 0, rows(0, 4), 2)
    assert kept.table("items", np.array([0]), base)[0, :, 0].tolist() == [2, 0, 0, 0, 2, 0]


def test_tables_lie_over_the_shared_one(kept: PersonalStore) -> None:
    base = torch.arange(2.0 * N_ITEMS).view(N_ITEMS, 2)
    put(kept, 2, rows(1, 5), -1)
    tables = kept.table("items", np.array([2, 0, 2]), base)
    expected = base.clone()
    expected[[1, 5]] = -1
    assert torch.equal(tables, torch.stack([expected, base, expected]))
    tables.zero_()  # a copy: neither the shared table nor the client's rows are behind it
    assert torch.equal(base, torch.arange(2.0 * N_ITEMS).view(N_ITEMS, 2))
    assert kept.rows["items"][2].values.tolist() == [[-1, -1], [-1, -1]]


def test_tables_of_a_personal_leaf_lie_over_its_start(personal: PersonalStore) -> None:
    start = get(personal, 0, torch.arange(N_ITEMS))
    put(personal, 1, rows(3), 7)
    tables = personal.table("items", np.array([0, 1]), None)
    assert torch.equal(tables[0], start)
    assert tables[1, 3].tolist() == [7, 7]
    assert torch.equal(tables[1, [0, 1, 2, 4, 5]], start[[0, 1, 2, 4, 5]])


PUTS = st.lists(
    st.tuples(st.integers(0, N_CLIENTS - 1), st.sets(st.integers(0, N_ITEMS - 1), min_size=1)), max_size=12
)


@FORMS
@given(puts=PUTS)
def test_personal_rows_are_the_last_put(form: int, puts) -> None:
    """Against a table of every client that is simply written over."""
    _, store = store_of("local", form)
    plain = store.table("items", np.arange(N_CLIENTS), None)
    for value, (client, items) in enumerate(puts):
        put(store, client, rows(*sorted(items)), value)
        plain[client, sorted(items)] = value
    assert torch.equal(store.table("items", np.arange(N_CLIENTS), None), plain)
    everything = torch.arange(N_ITEMS)
    for client in range(N_CLIENTS):
        assert torch.equal(get(store, client, everything), plain[client])


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return set(one) == set(two) and all(torch.equal(one[name], two[name]) for name in one)


def saved(store: PersonalStore) -> dict[str, torch.Tensor]:
    """As if written to a file and read again."""
    return {name: value.clone() for name, value in store.tensors().items()}


def put_all(store: PersonalStore, puts) -> None:
    whole = next(iter(store.whole))
    for value, (client, items) in enumerate(puts):
        if store.rows or store.tables:
            put(store, client, rows(*sorted(items)), value)
        store.whole[whole][client] = float(value)


@pytest.mark.parametrize("name", ["local", "pfedrec", "fedmf"])
@FORMS
@given(puts=PUTS)
def test_saved_and_restored(name: str, form: int, puts) -> None:
    _, store = store_of(name, form)
    put_all(store, puts)
    _, fresh = store_of(name, form)
    fresh.restore(saved(store))
    assert same(fresh.tensors(), store.tensors())
    base = None if name == "local" else torch.zeros(N_ITEMS, 2)
    everybody = np.arange(N_CLIENTS)
    for leaf in (*store.rows, *store.tables):
        assert torch.equal(fresh.table(leaf, everybody, base), store.table(leaf, everybody, base))


@pytest.mark.parametrize("name", ["local", "pfedrec", "fedmf"])
@FORMS
@given(before=PUTS, after=PUTS)
def test_a_copy_stays_as_it_was(name: str, form: int, before, after) -> None:
    _, store = store_of(name, form)
    put_all(store, before)
    expected = saved(store)
    copy = store.copy()
    put_all(store, after)
    assert same(copy.tensors(), expected)
    moved = saved(store)
    put_all(copy, before)  # nor does the copy change its original
    assert same(store.tensors(), moved)


@pytest.mark.parametrize("name", ["local", "pfedrec", "fedmf"])
@FORMS
def test_what_was_restored_from_stays_as_it_was(name: str, form: int) -> None:
    _, store = store_of(name, form)
    put_all(store, [(0, {1, 2}), (2, {3})])
    tensors = saved(store)
    expected = {key: value.clone() for key, value in tensors.items()}
    store.restore(tensors)
    put_all(store, [(1, {0}), (0, {1, 5})])
    assert same(tensors, expected)


def test_restore_forgets_what_came_after(kept: PersonalStore) -> None:
    empty = saved(kept)
    put(kept, 0, rows(1), 1)
    kept.restore(empty)
    assert len(kept.rows["items"]) == 0
    assert same(kept.tensors(), empty)


def test_rows_of_several_clients_at_once() -> None:
    """Two clients' rows in one call, in the order given, are what one call each gives."""
    together = TouchedRows(np.array([3, 0]), rows(1, 4, 0), torch.tensor([2, 1]))
    values = torch.tensor([[1.0, 1], [2, 2], [3, 3]])
    for form in (ROWS, TABLES):
        _, store = store_of("local", form)
        store.put("items", together, values)
        assert torch.equal(store.get("items", together), values)
        assert get(store, 3, rows(1, 4)).tolist() == [[1, 1], [2, 2]]
        assert get(store, 0, rows(0)).tolist() == [[3, 3]]


def test_tables_beyond_the_limit_are_held_by_rows() -> None:
    size = N_CLIENTS * N_ITEMS * 2 * 4
    assert store_of("local", size)[1].tables.keys() == {"items"}
    assert store_of("local", size - 1)[1].rows.keys() == {"items"}
