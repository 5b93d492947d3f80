"""Methods of one round against what a server with everybody's history would compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from closed_forms import closed_form
from solera.baselines import Ease
from solera.baselines.ease import EaseConfig
from solera.core.closed_form import WEIGHTS
from solera.core.errors import ConfigError, DataError
from solera.core.fixed_point import check_summable
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.dp.settings import check_private
from solera.engine.one_round import OneRound, _mirror, sum_for
from solera.evaluate import split
from solera.math.sparse_ridge import Neighbours
from solera.methods import find

CPU = torch.device("cpu")
N_ITEMS = 9


def solved(name: str, sequences: list[list[int]], **options: object) -> OneRound:
    train = Ragged.from_lists(sequences)
    federation = OneRound(
        closed_form(name, options), ClientData(train, train, N_ITEMS), device=CPU, dtype=torch.float64
    )
    federation.run_round(0)
    return federation


def memories(sequence: list[int], decays: tuple[float, ...]) -> np.ndarray:
    """s after every item of a sequence, one after the other: [len, decays · items]."""
    state, found = np.zeros((len(decays), N_ITEMS)), []
    for item in sequence:
        state = state * np.array(decays)[:, None]
        state[:, item] += 1
        found.append(state.ravel())
    return np.array(found)


def regression(
    sequences: list[list[int]], decays: tuple[float, ...], horizon: int, fade: float, ridge: float
) -> np.ndarray:
    """B from all s_t and y_t, written out."""
    inputs, outputs = [], []
    for sequence in sequences:
        for t, memory in enumerate(memories(sequence, decays)[:-1]):
            target = np.zeros(N_ITEMS)
            for j, item in enumerate(sequence[t + 1 : t + 1 + horizon]):
                target[item] += fade**j
            inputs.append(memory)
            outputs.append(target)
    s, y = np.array(inputs), np.array(outputs)
    gram = s.T @ s
    return np.linalg.solve(gram + ridge * np.diag(gram).mean() * np.eye(len(gram)), s.T @ y)


def random_sequences(seed: int, repeats: bool) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    lengths = [1, *draw.integers(2, 8, 11).tolist()]
    return [draw.choice(N_ITEMS, length, replace=repeats).tolist() for length in lengths]


@pytest.mark.parametrize("repeats", [False, True], ids=["distinct", "repeating"])
@pytest.mark.parametrize(
    ("decays", "horizon", "fade"),
    [((0.8,), 1, 0.5), ((0.0, 0.7), 3, 0.5), ((1.0, 0.3), 2, 1.0), ((0.6, 0.95, 1.0), 20, 0.0)],
)
def test_fedslist_is_the_regression_on_everybodys_history(decays, horizon, fade, repeats):
    sequences = random_sequences(1, repeats)
    options = {"decays": decays, "horizon": horizon, "horizon_decay": fade, "ridge": 0.2}
    weights = solved("fedslist", sequences, **options).state.shared[WEIGHTS].numpy()
    assert weights == pytest.approx(regression(sequences, decays, horizon, fade, 0.2), abs=1e-10)


@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0, 1), st.integers(1, 5))
def test_fedslist_for_any_settings(seed, decay, fade, horizon):
    sequences = random_sequences(seed, repeats=bool(seed % 2))
    options = {"decays": (decay, 0.5), "horizon": horizon, "horizon_decay": fade, "ridge": 0.5}
    weights = solved("fedslist", sequences, **options).state.shared[WEIGHTS].numpy()
    assert weights == pytest.approx(regression(sequences, (decay, 0.5), horizon, fade, 0.5), abs=1e-8)


def test_fedslist_scores_with_the_memory_of_the_whole_history():
    sequences = random_sequences(3, repeats=True)
    federation = solved("fedslist", sequences, decays=(0.5, 0.9))
    stranger = [4, 1, 4, 7]  # a history that took no part
    scores = federation.serve(Ragged.from_lists([[2], stranger]))(np.array([1]))
    expected = memories(stranger, (0.5, 0.9))[-1] @ federation.state.shared[WEIGHTS].numpy()
    assert scores.numpy()[0] == pytest.approx(expected, abs=1e-12)


def interactions(sequences: list[list[int]]) -> Interactions:
    rows = [(user, item) for user, items in enumerate(sequences) for item in items]
    users, items = np.array(rows).T
    return Interactions.from_columns(
        users=users.astype(str), items=items.astype(str), times=np.arange(len(rows)), name="toy"
    )


def test_fedease_is_ease():
    data = interactions([row for row in random_sequences(5, repeats=False) if len(row) >= 3])
    parts = split(data, "strict")
    central = Ease.fit(parts, EaseConfig(reg=3.0))
    clients = ClientData(parts.train, parts.excluded, data.n_items)
    federation = OneRound(closed_form("fedease", {"reg": 3.0}), clients, device=CPU, dtype=torch.float32)
    federation.run_round(0)
    assert torch.equal(federation.state.shared[WEIGHTS], central.weights)
    everybody = np.arange(data.n_users)
    served = federation.serve(parts.train)(everybody)
    torch.testing.assert_close(served, central.scores(everybody, parts.train), rtol=1e-6, atol=1e-7)


def test_recency_weighs_the_latest_most():
    federation = solved("fedease", random_sequences(7, repeats=False), recency=0.5)
    scores = federation.serve(Ragged.from_lists([[3, 8, 5]]))(np.array([0]))[0]
    weights = federation.state.shared[WEIGHTS]
    torch.testing.assert_close(scores, weights[5] + weights[8] / 2 + weights[3] / 4)


def test_the_order_of_clients_does_not_matter_and_sums_are_of_own_items_alone():
    sequences = random_sequences(11, repeats=True)
    one = solved("fedslist", sequences).state.shared[WEIGHTS]
    other = solved("fedslist", sequences[::-1]).state.shared[WEIGHTS]
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    for sequence in sequences:
        sent = find("fedslist").update.of(np.array(sequence))
        assert sent.items.tolist() == sorted(set(sequence)) or sent.items.tolist() == sequence
        m = len(set(sequence))
        assert {block.shape for block in sent.blocks.values()} == {(2, m, 2, m), (2, m, 1, m)}


def test_what_does_not_fit_is_refused_with_a_next_step():
    train = Ragged.from_lists([[0, 1, 2]])
    with pytest.raises(DataError, match=r"100,000 items takes 298\.0 GiB"):
        OneRound(closed_form("fedslist"), ClientData(train, train, 100_000), device=CPU, dtype=torch.float32)
    with pytest.raises(ConfigError, match="without training"):
        find("fedease", {}, ["plgc"])
    with pytest.raises(ConfigError, match="decays"):
        find("fedslist", {"decays": "0.5,1.5"})
    assert find("fedslist", {"decays": "0,0.9"}).config.decays == (0.0, 0.9)


def test_popularity_is_discounted_by_how_often_an_item_was_met_before_the_last():
    """The first memory has decay 0, so the diagonal of S counts the places that have a next item."""
    sequences = random_sequences(3, repeats=True)
    options = {"decays": (0.0, 0.7), "ridge": 0.2}
    plain = solved("fedslist", sequences, **options).state.shared[WEIGHTS]
    less = solved("fedslist", sequences, **options, popularity_discount=0.5).state.shared[WEIGHTS]
    met = np.bincount([item for sequence in sequences for item in sequence[:-1]], minlength=N_ITEMS)
    torch.testing.assert_close(less, plain / torch.from_numpy(1.0 + met).sqrt())


def test_a_client_sends_half_of_what_is_symmetric_and_no_zeros():
    """Of two items, the first has a next one: S is 2 × 2 memories of that item, T is 2 × 1 of the pair."""
    update = find("fedslist", {"decays": (0.5, 1.0)}).update
    assert update.of(np.array([4, 2])).numbers(update.sums) == 2 + 3 + 2
    pairs = find("fedease").update
    assert pairs.of(np.array([4, 2, 7])).numbers(pairs.sums) == 3 + 6


@pytest.mark.parametrize(("name", "channels"), [("fedease", 1), ("fedslist", 2)])
def test_with_all_neighbours_nothing_is_lost(name, channels):
    """Everything has followed everything, so every item is a neighbour of every other one."""
    draw = np.random.default_rng(4)
    sequences = [draw.choice(N_ITEMS, 90).tolist() for _ in range(12)]
    exact = solved(name, sequences)
    sparse = solved(name, sequences, neighbours=channels * N_ITEMS)
    weights = Neighbours.of(sparse.state.shared, channels)
    assert weights is not None
    found = torch.stack([weights.column(item) for item in range(N_ITEMS)], dim=-1).permute(1, 0, 2)
    torch.testing.assert_close(found.reshape(-1, N_ITEMS), exact.state.shared[WEIGHTS])
    histories = Ragged.from_lists([[3, 8, 5], [], [1, 1, 0]])
    everybody = np.arange(3)
    torch.testing.assert_close(sparse.serve(histories)(everybody), exact.serve(histories)(everybody))


@pytest.mark.parametrize("name", ["fedease", "fedslist"])
def test_a_sparse_total_is_the_dense_one(name):
    sequences = random_sequences(8, repeats=True)
    totals = [sum_for(closed_form(name, {"neighbours": k}), N_ITEMS) for k in (0, 3)]
    for sequence in sequences:
        for total in totals:
            total.add(closed_form(name).update.of(np.array(sequence)))
    dense, sparse = (total.of(np.arange(N_ITEMS)) for total in totals)
    for key, channels in closed_form(name).update.sums.items():
        whole = dense.blocks[key].copy()
        _mirror(whole, channels)
        assert sparse.blocks[key] == pytest.approx(whole)


def test_sparse_sums_are_refused_where_every_pair_would_be_sent():
    method = closed_form("fedease", {"neighbours": 5})
    with pytest.raises(ConfigError, match="secure aggregation"):
        check_summable(method)
    with pytest.raises(ConfigError, match="differential privacy"):
        check_private(method)
    with pytest.raises(ConfigError, match="no sparse form"):
        find("fedease", {"neighbours": 5, "sketch": 4})


def test_a_catalogue_that_is_too_large_for_dense_sums_is_solved_with_neighbours():
    train = Ragged.from_lists([[0, 99_999], [0, 99_999, 5]])
    clients = ClientData(train, train, 100_000)
    with pytest.raises(DataError, match="GiB") as refused:
        OneRound(closed_form("fedease"), clients, device=CPU, dtype=torch.float32)
    assert "-o neighbours=200" in str(refused.value.hint)
    federation = OneRound(
        closed_form("fedease", {"neighbours": 2, "reg": 1.0}), clients, device=CPU, dtype=torch.float32
    )
    federation.run_round(0)
    scores = federation.serve(train)(np.array([0]))[0]
    assert set(scores.nonzero().flatten().tolist()) == {0, 5, 99_999}
