from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solera.core.errors import DataError
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData, sample, shuffles

CHI_SQUARE = {3: 16.27, 23: 49.73}  # 99.9 % points; the draws are fixed, so this is no matter of luck


def clients_of(lists: list[tuple[list[int], list[int]]], n_items: int) -> ClientData:
    """Each client's training items, and what else is never a negative."""
    train = Ragged.from_lists([train for train, _ in lists])
    excluded = train.concat(Ragged.from_lists([more for _, more in lists]))
    return ClientData(train, excluded.sorted_unique(), n_items)


@st.composite
def client_data(draw: st.DrawFn) -> ClientData:
    n_items = draw(st.integers(2, 12))
    lists = []
    for _ in range(draw(st.integers(1, 6))):
        order = draw(st.permutations(range(n_items)))
        n_excluded = draw(st.integers(0, n_items - 1))
        n_train = draw(st.integers(0, n_excluded))
        lists.append((order[:n_train], order[n_train:n_excluded]))
    return clients_of(lists, n_items)


@given(data=client_data(), negatives=st.integers(1, 5), seed=st.integers(0, 2**32), round_=st.integers(0, 99))
def test_positives_once_then_negatives_that_are_none(data, negatives, seed, round_) -> None:
    samples = sample(data, np.arange(data.n_clients), negatives, seed, round_)
    assert samples.positives.tolist() == data.train.lengths.tolist()
    for client in range(data.n_clients):
        train, items = data.train.row(client).tolist(), samples.items.row(client).tolist()
        assert items[: len(train)] == train
        drawn = items[len(train) :]
        assert len(drawn) == negatives * len(train)
        assert not set(drawn) & set(data.excluded.row(client).tolist())
        assert all(0 <= item < data.n_items for item in drawn)


@given(
    data=client_data(),
    negatives=st.integers(1, 4),
    seed=st.integers(0, 9),
    company=st.randoms(),
    size=st.data(),
)
def test_a_clients_samples_do_not_depend_on_its_company(data, negatives, seed, company, size) -> None:
    everybody = list(range(data.n_clients))
    alone = [sample(data, np.array([c]), negatives, seed, 3).items.values.tolist() for c in everybody]
    company.shuffle(everybody)
    group = everybody[: size.draw(st.integers(1, data.n_clients))]
    together = sample(data, np.array(group), negatives, seed, 3)
    assert [together.items.row(place).tolist() for place in range(len(group))] == [alone[c] for c in group]


def test_negatives_are_uniform_over_what_is_left() -> None:
    """Items 1, 4 and 5 of 7 are left out: 0, 2, 3 and 6 must come equally often."""
    data = clients_of([([1, 4], [5])] * 50, 7)
    rounds = [sample(data, np.arange(50), 10, 0, r).items.values.reshape(50, 22)[:, 2:] for r in range(20)]
    drawn = np.concatenate(rounds).ravel()
    counts = np.bincount(drawn, minlength=7)
    assert counts[[1, 4, 5]].tolist() == [0, 0, 0]
    expected = len(drawn) / 4
    assert len(drawn) == 20 * 50 * 20
    assert float(((counts[[0, 2, 3, 6]] - expected) ** 2).sum() / expected) < CHI_SQUARE[3]


# By mass


@given(
    data=client_data(),
    draws=st.data(),
    negatives=st.integers(1, 5),
    seed=st.integers(0, 2**32),
    company=st.randoms(),
)
def test_by_mass_what_is_excluded_never_comes(data, draws, negatives, seed, company) -> None:
    """Whatever the masses, also next to nothing beside nearly everything; and alone as in company."""
    mass = st.one_of(st.integers(1, 3), st.integers(2**38, 2**39))
    weighed = replace(data, mass=np.array([draws.draw(mass) for _ in range(data.n_items)]))
    everybody = list(range(data.n_clients))
    company.shuffle(everybody)
    together = sample(weighed, np.array(everybody), negatives, seed, 0)
    for place, client in enumerate(everybody):
        train, items = data.train.row(client).tolist(), together.items.row(place).tolist()
        assert items[: len(train)] == train
        drawn = items[len(train) :]
        assert len(drawn) == negatives * len(train)
        assert not set(drawn) & set(data.excluded.row(client).tolist())
        assert all(0 <= item < data.n_items for item in drawn)
        alone = sample(weighed, np.array([client]), negatives, seed, 0)
        assert alone.items.values.tolist() == items


@given(
    data=client_data(), negatives=st.integers(1, 5), seed=st.integers(0, 9), mass=st.sampled_from([1, 4, 512])
)
def test_equal_masses_are_none(data, negatives, seed, mass) -> None:
    """With all masses a power of two the very same items come."""
    everybody = np.arange(data.n_clients)
    equal = sample(replace(data, mass=np.full(data.n_items, mass)), everybody, negatives, seed, 0)
    plain = sample(data, everybody, negatives, seed, 0)
    assert equal.items.values.tolist() == plain.items.values.tolist()


def frequencies(data: ClientData, n: int) -> np.ndarray:
    """How often each item comes up as one of 10 negatives of each of n clients' two items, in 20 rounds."""
    rounds = [sample(data, np.arange(n), 10, 0, r).items.values.reshape(n, 22)[:, 2:] for r in range(20)]
    return np.bincount(np.concatenate(rounds).ravel(), minlength=data.n_items)


def test_negatives_come_by_mass() -> None:
    """Of items 0, 2, 3 and 6, which are left, item 6 comes four times as often as item 0."""
    data = replace(clients_of([([1, 4], [5])] * 50, 7), mass=np.array([1, 9, 2, 3, 9, 9, 4]))
    counts = frequencies(data, 50)
    assert counts[[1, 4, 5]].tolist() == [0, 0, 0]
    expected = 20 * 50 * 20 * np.array([1, 2, 3, 4]) / 10
    assert float(((counts[[0, 2, 3, 6]] - expected) ** 2 / expected).sum()) < CHI_SQUARE[3]


@pytest.mark.parametrize(("power", "shares"), [(0, [1, 1, 1, 1]), (0.5, [1, 1, 1, 2]), (1, [1, 1, 1, 4])])
def test_popularity(power: float, shares: list[int]) -> None:
    """30 clients train on 1 and 4, three on 6 and 1: n + 1 is 34 for item 1, 31 for item 4, 4 for item 6."""
    data = clients_of([([1, 4], [5])] * 30 + [([6, 1], [])] * 3, 7).by_popularity(power)
    ideal = np.array([1, 34, 1, 1, 31, 1, 4]) ** power
    assert data.mass / data.mass.sum() == pytest.approx(ideal / ideal.sum(), rel=1e-9)
    counts = frequencies(data, 30)
    expected = 20 * 30 * 20 * np.array(shares) / sum(shares)
    assert float(((counts[[0, 2, 3, 6]] - expected) ** 2 / expected).sum()) < CHI_SQUARE[3]


def test_the_rarest_item_may_still_come() -> None:
    train = Ragged.from_lists([[0]] * 3_000 + [[1]])
    assert ClientData(train, train, 3).by_popularity(20.0).mass.min() == 1


@pytest.mark.parametrize("change", ["seed", "round_", "client"])
def test_negatives_are_drawn_anew(change: str) -> None:
    data = clients_of([(list(range(20)), [])] * 2, 10_000)
    base = {"seed": 0, "round_": 0, "client": 0}

    def drawn(seed: int, round_: int, client: int) -> list[int]:
        return sample(data, np.array([client]), 4, seed, round_).items.values[20:].tolist()

    first, other = drawn(**base), drawn(**base | {change: 1})
    assert first == drawn(**base)
    assert sum(a == b for a, b in zip(first, other, strict=True)) <= 2  # by chance 80 / 10 000


def test_the_only_free_item_is_every_negative() -> None:
    data = clients_of([([0], [1, 2]), ([3], [1, 2]), ([1, 3], [0])], 4)
    samples = sample(data, np.arange(3), 2, 0, 0)
    assert samples.items.values.tolist() == [0, 3, 3, 3, 0, 0, 1, 3, 2, 2, 2, 2]


def test_a_user_who_has_everything() -> None:
    data = clients_of([([0], []), ([0, 1], [2]), ([1], [])], 3)
    with pytest.raises(DataError, match="user number 1 has interacted with every item"):
        sample(data, np.arange(3), 1, 0, 0)
    assert len(sample(data, np.array([0, 2]), 1, 0, 0).items) == 2


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 9),
    company=st.randoms(),
)
def test_shuffles_are_permutations_and_do_not_depend_on_company(lengths, epochs, seed, company) -> None:
    number = np.array(lengths)
    who = list(range(len(lengths)))
    alone = [shuffles(number[[c]], np.array([c]), epochs, seed, 5) for c in who]
    company.shuffle(who)
    together = shuffles(number[who], np.array(who), epochs, seed, 5)
    start = 0
    for client in who:
        part = together[:, start : start + lengths[client]] - start
        assert (np.sort(part, axis=1) == np.arange(lengths[client])).all()
        assert (part == alone[client]).all()
        start += lengths[client]
    assert together.shape == (epochs, start)


def test_shuffles_differ_between_epochs_rounds_seeds_and_clients() -> None:
    length = np.array([30, 30])
    orders = [
        tuple(part.tolist())
        for seed in (0, 1)
        for round_ in range(3)
        for epoch in shuffles(length, np.array([0, 1]), 4, seed, round_)
        for part in (epoch[:30], epoch[30:] - 30)
    ]
    assert len(set(orders)) == len(orders) == 2 * 3 * 4 * 2


def test_more_epochs_begin_with_the_same_ones() -> None:
    lengths, who = np.array([5, 8]), np.array([3, 9])
    assert (shuffles(lengths, who, 4, 0, 0)[:2] == shuffles(lengths, who, 2, 0, 0)).all()


def test_every_order_is_equally_likely() -> None:
    """4! = 24 orders of four samples, over 2 400 clients in each of two epochs."""
    n = 2400
    for epoch in shuffles(np.full(n, 4), np.arange(n), 2, 0, 0):
        orders = epoch.reshape(n, 4) - 4 * np.arange(n)[:, None]
        _, counts = np.unique(orders, axis=0, return_counts=True)
        assert len(counts) == 24
        assert float(((counts - 100) ** 2).sum() / 100) < CHI_SQUARE[23]


def test_too_many_at_once() -> None:
    with pytest.raises(ValueError, match="too many"):
        shuffles(np.array([1 << 24]), np.array([0]), 1, 0, 0)
    with pytest.raises(ValueError, match="too many"):
        shuffles(np.ones(1 << 15, dtype=np.int64), np.arange(1 << 15), 1, 0, 0)
