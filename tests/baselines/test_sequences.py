"""Centralized transformers: what they learn, which epoch they keep, and what they read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from planted import blocks, interactions, noise

from solera.baselines.transformers import (
    BestEpoch,
    Clock,
    ESASRecConfig,
    HSTUConfig,
    SASRecConfig,
    SequenceModel,
    Validation,
    groups,
    rate_at,
    windows,
)
from solera.core.errors import DataError
from solera.data.interactions import Interactions, Split, history
from solera.data.ragged import Ragged
from solera.evaluate import Evaluator, split
from solera.math.transformer import Transformer

SMALL: dict[str, Any] = {
    "embedding_size": 16,
    "learning_rate": 0.01,
    "batch_size": 16,
    "max_length": 8,
    "dropout": 0.1,
    "warmup": 10,
}
CONFIGS: list[Any] = [SASRecConfig, ESASRecConfig, HSTUConfig]


def circle(n_users: int = 120, n_items: int = 30) -> Interactions:
    """Item i is followed by i + 1, and the last by the first; users begin anywhere."""
    rng = np.random.default_rng(0)
    lists = [((rng.integers(n_items) + np.arange(rng.integers(5, 15))) % n_items) for _ in range(n_users)]
    return interactions([row.tolist() for row in lists], n_items)


def hits(model: SequenceModel, parts: Split, metric: str) -> float:
    return (
        Evaluator(parts, seed=0).test(lambda users: model.scores(users, history(parts, "test"))).full[metric]
    )


def untrained(block: Any = "sasrec", **options: Any) -> SequenceModel:
    """A model far from the start, where every state is nearly the same."""
    network = Transformer(block, embedding_size=8, layers=2, heads=2, max_length=8, **options)
    params = network.initial(20, 0)
    draw = torch.Generator().manual_seed(0)
    return SequenceModel(
        network, {name: p + 0.5 * torch.randn(p.shape, generator=draw) for name, p in params.items()}
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_learns_what_follows(config: Any) -> None:
    """The next item has the top score for every last item."""
    parts = split(circle(), "strict")
    fitted = SequenceModel.fit(parts, config(**SMALL, epochs=24))
    assert hits(fitted, parts, "hr@5") == 1
    last = np.arange(30)
    histories = Ragged.from_lists([[(i - 2) % 30, (i - 1) % 30, i] for i in last.tolist()])
    assert fitted.scores(last, histories).argmax(1).tolist() == ((last + 1) % 30).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "least"), [("sampled", 0.9), ("gbce", 0.4)])
def test_learns_what_follows_from_ten_negatives(loss: Any, least: float) -> None:
    """Chance is 0.18; binary cross-entropy learns more slowly."""
    parts = split(circle(), "strict")
    fitted = SequenceModel.fit(parts, SASRecConfig(**SMALL, epochs=30, patience=30, loss=loss, negatives=10))
    assert hits(fitted, parts, "hr@5") > least


@pytest.mark.slow
def test_learns_planted_blocks() -> None:
    """Chance is 0.125, and 1.0 can be reached."""
    parts = split(blocks(), "strict")
    assert hits(SequenceModel.fit(parts, SASRecConfig(**SMALL, epochs=40, patience=40)), parts, "hr@5") > 0.9


def test_finds_nothing_in_noise() -> None:
    """Chance is 10/49, the validation item apart; four standard deviations of 200 users are 0.11."""
    parts = split(noise(), "strict")
    fitted = SequenceModel.fit(parts, SASRecConfig(**SMALL, epochs=10))
    assert hits(fitted, parts, "hr@10") == pytest.approx(10 / 49, abs=0.11)


@pytest.mark.parametrize("options", [{}, {"loss": "sampled", "negatives": 10}])
def test_the_seed_decides(options: dict[str, Any]) -> None:
    """With two threads, and whatever has been drawn elsewhere before."""
    torch.set_num_threads(2)
    parts = split(circle(), "strict")
    config = SASRecConfig(**SMALL | {"batch_size": 64}, epochs=1, **options)
    scores = []
    for seed in (1, 1, 2):
        scores.append(SequenceModel.fit(parts, config, seed).scores(np.arange(120), parts.train))
        torch.rand(3)
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])


def test_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    SequenceModel.fit(split(circle(), "strict"), SASRecConfig(**SMALL, epochs=1))
    assert torch.equal(torch.rand(1), wanted)


# The epoch that is kept


def test_the_best_epoch_is_kept() -> None:
    params = {"items": torch.zeros(2)}
    best = BestEpoch(params, patience=4)
    for epoch, value in [(2, 0.3), (4, 0.5), (6, 0.4)]:
        params["items"].fill_(epoch)
        best.offer(epoch, value)
        assert not best.is_over(epoch)
    assert best.params["items"].tolist() == [4, 4]
    assert best.is_over(8)


def test_training_ends_when_validation_does_not_improve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of epochs 2, 4, 6 and 8: the second is best, and two more are waited for."""
    parts, values, seen = split(circle(), "strict"), iter([0.1, 0.9, 0.2, 0.3, 0.4]), []
    kept: list[torch.Tensor] = []

    def ndcg(_: Validation, model: SequenceModel) -> float:
        kept.append(model.params["items"].detach().clone())
        return next(values)

    monkeypatch.setattr(Validation, "ndcg", ndcg)
    config = SASRecConfig(**SMALL, epochs=20, patience=4)
    model = SequenceModel.fit(parts, config, on_epoch=lambda epoch: seen.append(epoch.done))
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8]
    assert torch.equal(model.params["items"], kept[1])
    assert not torch.equal(kept[1], kept[3])


def test_validation_is_the_evaluators() -> None:
    parts, model = split(circle(), "strict"), untrained()
    model.params["items"] = torch.randn(30, 8, generator=torch.Generator().manual_seed(1))
    wanted = Evaluator(parts, 0).validation(lambda users: model.scores(users, parts.train)).full["ndcg@10"]
    assert Validation(parts, 0).ndcg(model) == pytest.approx(wanted)


def test_held_out_items_do_not_train() -> None:
    """Other held-out items, another epoch at most; with one epoch, the same model."""
    parts = split(circle(), "strict")
    other = replace(parts, validation=Ragged(parts.validation.offsets, (parts.validation.values + 7) % 30))
    config = SASRecConfig(**SMALL, epochs=1)
    models = [SequenceModel.fit(part, config) for part in (parts, other)]
    assert torch.equal(models[0].params["items"], models[1].params["items"])


# What a score depends on


@pytest.mark.parametrize("block", ["sasrec", "ligr", "hstu"])
def test_company_does_not_matter(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long, short and empty histories together, in two groups, and alone."""
    monkeypatch.setattr("solera.baselines.transformers.GROUP", 4)
    model = untrained(block)
    lists = Ragged.from_lists([[3, 1], list(range(19)), [], [5], [2] * 7, [2] * 8])
    users = np.array([4, 1, 2, 0, 5, 3])
    together = model.scores(users, lists)
    assert together.shape == (6, 20)
    for row, user in enumerate(users):
        alone = model.scores(np.array([user]), lists)[0]
        assert torch.allclose(alone, together[row], rtol=1e-4, atol=1e-4)
    assert model.scores(np.array([], dtype=np.int64), lists).shape == (0, 20)


def test_the_last_items_are_read() -> None:
    model = untrained()
    lists = Ragged.from_lists(
        [[9, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8], [9, 2, 3, 4, 5, 6, 7, 8, 1]]
    )
    longer, same, other = model.scores(np.arange(3), lists)
    assert torch.allclose(longer, same)
    assert not torch.allclose(longer, other, atol=0.1)


# Windows, groups and the learning rate


def test_windows_by_hand() -> None:
    """Histories of 3, 1 and 6 items: whole ones, and the last three or any three of the long one."""
    histories = Ragged.of_lengths(np.array([3, 1, 6]), np.arange(10))
    found = [windows(histories, np.array([2, 0, 1]), 3, np.random.default_rng(seed)) for seed in range(40)]
    assert all(cut[1:].tolist() == [[0, 3, 1], [3, 4, 1]] for cut in found)
    long = [tuple(cut[0].tolist()) for cut in found]
    assert set(long) == {(4, 7, 1), (5, 8, 0), (6, 9, 0), (7, 10, 0)}
    assert long.count((7, 10, 0)) > 15


def test_groups_have_like_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths of 1, 2, 3 to 4, 5 to 8 and so on together, at most two of them."""
    monkeypatch.setattr("solera.baselines.transformers.GROUP", 2)
    found = [group.tolist() for group in groups(np.array([5, 1, 9, 2, 8, 6, 0]))]
    assert found == [[6, 1], [3], [0, 5], [4], [2]]
    assert groups(np.array([], dtype=np.int64)) == []


def test_the_learning_rate_by_hand() -> None:
    """Up in four steps; at half of the way cos is 0, so 0.05 + 0.95/2; at the end 0.05."""
    assert rate_at(0, 100, 4) == pytest.approx(0.25)
    assert rate_at(50, 100, 4) == pytest.approx(0.525)
    assert rate_at(100, 100, 0) == pytest.approx(0.05)


# HSTU's times


def timed() -> Interactions:
    """Two users, whose last two items are held out."""
    data = interactions([[0, 1, 2, 3], [2, 0, 1]], 20)
    return replace(data, times=np.array([10, 20, 50, 90, 5, 7, 8]))


def test_the_clock_by_hand() -> None:
    parts = split(timed(), "strict")
    clock, users = Clock(parts, request_time=True), np.array([1, 0])
    longer = history(parts, "test").take(users)
    assert clock.times(users, longer).tolist() == [5, 7, 10, 20, 50, 0]
    assert clock.requests(users, longer).tolist() == [8, 90]
    assert clock.requests(users, parts.train.take(users)).tolist() == [7, 50]
    times, lengths = torch.tensor([[5, 7, 0], [10, 20, 50]]), torch.tensor([2, 3])
    known = clock.in_service(times, lengths, torch.tensor([8, 90]))
    assert known["times"].tolist() == [[5, 5, 7, 0], [10, 10, 20, 50]]
    assert known["asked"][0, :3].tolist() == [5, 7, 8]
    assert known["asked"][1].tolist() == [10, 20, 50, 90]
    unknown = Clock(parts, request_time=False).in_service(times, lengths, torch.tensor([8, 90]))
    assert torch.equal(unknown["asked"], unknown["times"])
    window = clock.in_training(torch.tensor([[10, 20, 50]]))
    assert (window["times"].tolist(), window["asked"].tolist()) == ([[10, 10, 20]], [[10, 20, 50]])


@pytest.mark.parametrize("request_time", [False, True])
def test_the_time_of_the_request_is_read_only_if_known(request_time: bool) -> None:
    data, users = timed(), np.arange(2)
    later = replace(data, times=np.array([10, 20, 50, 90_000, 5, 7, 8]))  # the first user's test item
    model, scores = untrained("hstu", intervals=True), []
    for made in (data, later):
        parts = split(made, "strict")
        model.clock = Clock(parts, request_time=request_time)
        scores.append(model.scores(users, history(parts, "test")))
    assert torch.equal(scores[0][1], scores[1][1])
    assert torch.equal(scores[0][0], scores[1][0]) is not request_time


@pytest.mark.parametrize(
    "options", [pytest.param({}, marks=pytest.mark.slow), {"request_time": True}], ids=str
)
def test_hstu_trains_with_times(options: dict[str, Any]) -> None:
    data = circle()
    parts = split(replace(data, times=np.arange(len(data)) * 1000, one_clock=True), "strict")
    fitted = SequenceModel.fit(parts, HSTUConfig(**SMALL, epochs=24, time="intervals", **options))
    assert hits(fitted, parts, "hr@5") > 0.95


def test_ranks_in_place_of_times_are_refused() -> None:
    parts = split(replace(timed(), one_clock=False), "strict")
    with pytest.raises(DataError, match="has no times"):
        SequenceModel.fit(parts, HSTUConfig(time="intervals"))
