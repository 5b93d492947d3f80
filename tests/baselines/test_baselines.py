from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from solera.baselines import Ease, Popularity
from solera.baselines.ease import EaseConfig
from solera.core.errors import DataError
from solera.data.interactions import IdMap, Interactions, Split
from solera.data.ragged import Ragged


def trained(lists: list[list[int]], n_items: int) -> Split:
    """A split in which everything trains."""
    train = Ragged.from_lists(lists)
    users, items = (IdMap(np.arange(n).astype(str)) for n in (len(lists), n_items))
    data = Interactions("toy", train.rows, train.values, None, users, items)
    nothing = Ragged.from_lists([[] for _ in lists])
    return Split(data, "toy", False, train, nothing, nothing, train.sorted_unique())


def random_split(n_users: int = 40, n_items: int = 15) -> Split:
    rng = np.random.default_rng(0)
    return trained([rng.choice(n_items, 5, replace=False).tolist() for _ in range(n_users)], n_items)


def test_popularity_counts_users_not_rows() -> None:
    """Item 0 has two users (one of them twice), item 1 one, item 2 none; everybody gets the same scores."""
    split = trained([[0, 0, 1], [0]], 3)
    got = Popularity.fit(split).scores(np.array([1, 0, 1]), split.train)
    assert got.tolist() == [[2, 1, 0]] * 3


@pytest.mark.parametrize("baseline", [Popularity, Ease])
def test_held_out_items_do_not_train(baseline: type[Popularity] | type[Ease]) -> None:
    """Other held-out items, and a leaky `excluded`, leave the model as it is."""
    split = random_split()
    other = Ragged.from_lists([[u % 15] for u in range(40)])
    leaky = replace(split, validation=other, test=other, excluded=split.train.concat(other).sorted_unique())
    users = np.arange(40)
    assert torch.equal(
        baseline.fit(split).scores(users, split.train), baseline.fit(leaky).scores(users, split.train)
    )


def test_ease_by_hand() -> None:
    """Users {0, 1} and {0}, reg 1: XᵀX + I = [[3, 1], [1, 2]], so P = [[2, −1], [−1, 3]]/5.

    B_01 = −P_01/P_11 = 1/3 and B_10 = −P_10/P_00 = 1/2; the diagonal is zero. Scores are sums of rows of B.
    """
    split = trained([[0, 1], [0]], 2)
    model = Ease.fit(split, EaseConfig(reg=1))
    assert torch.allclose(model.weights, torch.tensor([[0, 1 / 3], [1 / 2, 0]]))
    assert torch.allclose(
        model.scores(np.array([1, 0]), split.train), torch.tensor([[0, 1 / 3], [1 / 2, 1 / 3]])
    )


def test_ease_is_the_constrained_minimum() -> None:
    """With a zero diagonal, the gradient XᵀX B + reg·B − XᵀX must vanish everywhere off the diagonal."""
    split = random_split()
    x = torch.zeros(40, 15, dtype=torch.float64)
    x[split.train.rows, split.train.values] = 1
    b = Ease.fit(split, EaseConfig(reg=3)).weights.double()
    gradient = x.T @ x @ b + 3 * b - x.T @ x
    assert b.diagonal().abs().max() == 0
    assert (gradient - gradient.diagonal().diag()).abs().max() < 1e-5


def test_ease_finds_the_checkerboard() -> None:
    """Even users have even items and odd users odd ones, each but one: the missing one must come first."""
    lists = [[i for i in range(u % 2, 20, 2) if i != missing] for u, missing in _missing()]
    split = trained(lists, 20)
    scores = Ease.fit(split, EaseConfig(reg=1)).scores(np.arange(len(lists)), split.train)
    scores[split.train.rows, split.train.values] = -torch.inf
    assert scores.argmax(1).tolist() == [missing for _, missing in _missing()]


def _missing() -> list[tuple[int, int]]:
    return [(u, u) for u in range(20)]


def test_ease_one_user_equals_a_batch() -> None:
    split = random_split()
    model = Ease.fit(split)
    batch = model.scores(np.arange(40), split.train)
    for u in (0, 17, 39):
        assert torch.allclose(model.scores(np.array([u]), split.train)[0], batch[u], atol=1e-7)


def test_ease_scores_by_the_given_history_and_counts_an_item_once() -> None:
    split = random_split()
    model = Ease.fit(split)
    once = Ragged.from_lists([[3, 7]] + [[]] * 39)
    twice = Ragged.from_lists([[3, 7, 3]] + [[]] * 39)
    wanted = model.weights[3] + model.weights[7]
    assert torch.allclose(model.scores(np.array([0]), once)[0], wanted)
    assert torch.equal(model.scores(np.array([0]), once), model.scores(np.array([0]), twice))
    assert model.scores(np.array([1]), once).abs().max() == 0


def test_ease_refuses_catalogues_that_do_not_fit() -> None:
    with pytest.raises(DataError, match="items × items") as caught:
        Ease.fit(trained([[0, 1]], 20_001))
    assert "popularity" in caught.value.hint


@pytest.mark.parametrize("wrong", [{"reg": 0}, {"reg": -1}, {"lambda": 500}])
def test_ease_config_refuses(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        EaseConfig.model_validate(wrong)


def test_ease_config_round_trips_and_is_frozen() -> None:
    config = EaseConfig(reg=20)
    assert EaseConfig.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ValidationError):
        config.reg = 1
