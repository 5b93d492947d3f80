from __future__ import annotations

import time
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solera.core.errors import DivergedError
from solera.core.randomness import Bits, Purpose, client_keys
from solera.core.types import Ints
from solera.data.interactions import IdMap, Interactions, Split
from solera.data.ragged import Ragged
from solera.evaluate import PROTOCOLS, Evaluation, Evaluator, Score, ranking, split
from solera.evaluate.ranking import sample_unmet, spread_by_activity


def table(lists: list[list[int]], n_items: int) -> Interactions:
    by_user = Ragged.from_lists(lists)
    users, items = (IdMap([str(i) for i in range(n)]) for n in (len(lists), n_items))
    return Interactions("toy", by_user.rows, by_user.values, None, users, items)


def many(train: list[list[int]], validation: list[list[int]], test: list[list[int]], n_items: int) -> Split:
    """A split in which users may have any number of held-out items."""
    trained, validated, tested = (Ragged.from_lists(lists) for lists in (train, validation, test))
    everything = [a + b + c for a, b, c in zip(train, validation, test, strict=True)]
    excluded = trained.sorted_unique()
    return Split(table(everything, n_items), "toy", False, trained, validated, tested, excluded)


def fixed(scores: list[list[float]] | np.ndarray) -> Score:
    tensor = torch.as_tensor(np.asarray(scores, dtype=np.float64))
    return lambda users: tensor[torch.from_numpy(users)]


def constant(n_items: int) -> Score:
    return lambda users: torch.zeros(len(users), n_items)


def keys(n_users: int, seed: int) -> Bits:
    return client_keys(seed, Purpose.EVALUATION, 0, np.arange(n_users))


def test_hand_example() -> None:
    """One user: train 0, validation 1, test 2; scores 9 8 5 5 7 1.

    Validation: item 1 (8) against 2 3 4 5, none better: rank 1; 0 (9) is history. Test: item 2 (5) against
    3 (tied), 4 (better), 5 (worse): 1 + 1 + 1/2 = 2.5; 0 and 1 are history. The unmet items
    are just 3 4 5, so the sampled ranks are those against 3 4 5: 1 (8 beats all) and 2.5.
    """
    evaluator = Evaluator(split(table([[0, 1, 2]], 6), "strict"), seed=0)
    score = fixed([[9, 8, 5, 5, 7, 1]])
    assert evaluator.validation(score).full_ranking.places.tolist() == [1]
    assert evaluator.test(score).full_ranking.places.tolist() == [2.5]
    assert evaluator.validation(score).sampled99_ranking.places.tolist() == [1]
    assert evaluator.test(score).sampled99_ranking.places.tolist() == [2.5]


def test_test_item_competes_at_validation() -> None:
    """Whoever hides the test item while validating uses the answer: here it must push the rank to 2."""
    evaluator = Evaluator(split(table([[0, 1, 2]], 4), "strict"), seed=0)
    assert evaluator.validation(fixed([[0, 1, 2, 0]])).full_ranking.places.tolist() == [2]


def test_target_in_the_history_stays_a_candidate() -> None:
    """paper, rows 0 1 2 0: the test item 0 is in train too. Against 3 (better) and 4 (worse): rank 2."""
    timed = replace(table([[0, 1, 2, 0]], 5), times=np.arange(4))
    evaluator = Evaluator(split(timed, "paper"), seed=0)
    assert evaluator.test(fixed([[3, 9, 9, 4, 1]])).full_ranking.places.tolist() == [2]


def test_own_targets_do_not_compete() -> None:
    """Targets 1 (5) and 2 (3), others 3 (4), 4 (1): ranks 1 and 2, places 1 and 3."""
    evaluator = Evaluator(many([[0]], [[]], [[1, 2]], 5), seed=0)
    assert evaluator.test(fixed([[9, 5, 3, 4, 1]])).full_ranking.places.tolist() == [1, 3]


def test_users_without_held_out_items_are_left_out() -> None:
    evaluator = Evaluator(many([[0], [0], [1]], [[1], [], [2]], [[2], [], [0]], 4), seed=0)
    got = evaluator.test(constant(4))
    assert got.full_ranking.users.tolist() == [0, 2]
    assert len(got.full_ranking.per_user["hr@10"]) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_scores_that_are_not_finite(bad: float) -> None:
    evaluator = Evaluator(split(table([[0, 1, 2]], 4), "strict"), seed=0)
    with pytest.raises(DivergedError, match="lower the learning rate"):
        evaluator.test(fixed([[0, 1, bad, 0]]))


def test_scores_of_the_wrong_shape() -> None:
    evaluator = Evaluator(split(table([[0, 1, 2]], 4), "strict"), seed=0)
    with pytest.raises(ValueError, match=r"\[1, 4\]"):
        evaluator.test(constant(3))


def test_scores_are_left_as_they_were() -> None:
    scores = torch.arange(4.0)[None]
    Evaluator(split(table([[0, 1, 2]], 4), "strict"), seed=0).test(lambda users: scores)
    assert scores.tolist() == [[0, 1, 2, 3]]


def test_selected_figure() -> None:
    evaluator = Evaluator(split(table([[0, 1, 2]], 4), "strict"), seed=0)
    got = evaluator.validation(constant(4))
    assert got.selected(PROTOCOLS["strict"]) == got.full["ndcg@10"]
    assert got.selected(PROTOCOLS["paper"]) == got.sampled99["hr@10"]


@st.composite
def splits(draw: st.DrawFn) -> Split:
    """Few users, few items, up to five held-out items per part."""
    n_items = draw(st.integers(20, 40))
    users = []
    for _ in range(draw(st.integers(1, 5))):
        order = draw(st.permutations(range(n_items)))
        a, b, c = draw(st.tuples(st.integers(1, 8), st.integers(1, 5), st.integers(1, 5)))
        users.append((order[:a], order[a : a + b], order[a + b : a + b + c]))
    train, validation, test = ([list(user[part]) for user in users] for part in range(3))
    return many(train, validation, test, n_items)


seeds = st.integers(0, 2**32 - 1)


def random_scores(given_split: Split, seed: int, *, ties: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape = (given_split.data.n_users, given_split.data.n_items)
    return rng.integers(0, 6, shape).astype(np.float64) if ties else rng.normal(size=shape)


def same(a: Evaluation, b: Evaluation) -> bool:
    return bool((a.full_ranking.places == b.full_ranking.places).all()) and bool(
        (a.sampled99_ranking.places == b.sampled99_ranking.places).all()
    )


@given(splits())
def test_a_perfect_scorer_gets_one(given_split: Split) -> None:
    scores = np.zeros((given_split.data.n_users, given_split.data.n_items))
    scores[given_split.test.rows, given_split.test.values] = 1
    got = Evaluator(given_split, seed=0).test(fixed(scores))
    assert set(got.full.values()) == set(got.sampled99.values()) == {1.0}


@given(splits())
def test_a_constant_scorer_stands_in_the_middle(given_split: Split) -> None:
    """Rank 1 + (rivals)/2 for every target; the j-th of a user's targets stands j − 1 places further."""
    got = Evaluator(given_split, seed=0).test(constant(given_split.data.n_items))
    rivals = given_split.data.n_items - given_split.data.by_user.lengths
    wanted = [1 + n / 2 + j for n, m in zip(rivals, given_split.test.lengths, strict=True) for j in range(m)]
    assert got.full_ranking.places.tolist() == got.sampled99_ranking.places.tolist() == wanted


@given(splits(), seeds)
def test_numbering_of_items_does_not_matter(given_split: Split, seed: int) -> None:
    """All unmet items are sampled in catalogues this small, so both rankings must agree exactly."""
    n_items = given_split.data.n_items
    perm = np.random.default_rng(seed).permutation(n_items)
    parts = (given_split.train, given_split.validation, given_split.test)
    train, validation, test = ([perm[part.row(u)].tolist() for u in range(len(part))] for part in parts)
    renamed = many(train, validation, test, n_items)
    scores = random_scores(given_split, seed)
    moved = np.empty_like(scores)
    moved[:, perm] = scores
    for part in ("validation", "test"):
        before = getattr(Evaluator(given_split, 0), part)(fixed(scores))
        after = getattr(Evaluator(renamed, 0), part)(fixed(moved))
        assert same(before, after)


@given(splits(), seeds, st.integers(1, 200))
def test_chunks_do_not_matter(given_split: Split, seed: int, chunk: int) -> None:
    score = fixed(random_scores(given_split, seed))
    evaluator = Evaluator(given_split, seed)
    whole = evaluator.test(score)
    with patch.object(ranking, "CHUNK", chunk):
        assert same(whole, evaluator.test(score))


@given(splits(), seeds)
def test_agrees_with_a_sorted_list(given_split: Split, seed: int) -> None:
    scores = random_scores(given_split, seed, ties=False)
    got = Evaluator(given_split, 0).test(fixed(scores)).full_ranking
    wanted = []
    for u in range(given_split.data.n_users):
        hidden = {*given_split.train.row(u).tolist(), *given_split.validation.row(u).tolist()}
        listed = [i for i in np.argsort(-scores[u]).tolist() if i not in hidden]
        wanted += sorted(listed.index(item) + 1 for item in given_split.test.row(u).tolist())
    assert got.places.tolist() == wanted


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(splits(), seeds)
def test_agrees_with_ranx(given_split: Split, seed: int) -> None:
    """Compiling it takes a minute and a half where nobody has done so; sorted lists say the same."""
    ranx = pytest.importorskip("ranx")
    scores = random_scores(given_split, seed, ties=False)
    got = Evaluator(given_split, 0).test(fixed(scores))
    qrels, run = {}, {}
    for u in range(given_split.data.n_users):
        hidden = {*given_split.train.row(u).tolist(), *given_split.validation.row(u).tolist()}
        qrels[f"u{u}"] = {f"i{i}": 1 for i in given_split.test.row(u).tolist()}
        run[f"u{u}"] = {f"i{i}": float(s) for i, s in enumerate(scores[u]) if i not in hidden}
    names = {"hr": "hit_rate", "ndcg": "ndcg", "mrr": "mrr", "recall": "recall"}
    theirs = ranx.evaluate(
        ranx.Qrels(qrels), ranx.Run(run), [f"{name}@{k}" for name in names.values() for k in (5, 10, 20)]
    )
    for ours, name in names.items():
        for k in (5, 10, 20):
            assert got.full[f"{ours}@{k}"] == pytest.approx(theirs[f"{name}@{k}"]), f"{name}@{k}"


@given(
    st.lists(st.sets(st.integers(0, 29)), min_size=1, max_size=6),
    st.integers(30, 60),
    st.integers(1, 40),
    seeds,
)
def test_sampled_items_are_unmet_and_differ(met: list[set[int]], n_items: int, size: int, seed: int) -> None:
    lists = Ragged.from_lists([sorted(items) for items in met])
    drawn = sample_unmet(lists, n_items, size, keys(len(met), seed))
    for items, row in zip(met, drawn.tolist(), strict=True):
        valid = [item for item in row if item >= 0]
        assert len(valid) == len(set(valid)) == min(size, n_items - len(items))
        assert not items & set(valid)
        assert all(item < n_items for item in valid)


def test_sampled_items_are_uniform() -> None:
    """4,000 users draw 5 of 16 unmet items: each 1,250 times, standard deviation √(4000·p·(1−p)) = 29."""
    met = [0, 3, 4, 19]
    lists = Ragged.from_lists([met] * 4000)
    drawn = sample_unmet(lists, 20, 5, keys(4000, 1))
    counts = np.delete(np.bincount(drawn.ravel(), minlength=20), met)
    assert len(counts) == 16
    assert np.abs(counts - 1250).max() < 5 * 29


def test_sampled_items_of_a_user_depend_on_nobody_else() -> None:
    lists = [[1, 5], [2], [0, 9, 30], [7]]
    alone = sample_unmet(Ragged.from_lists(lists[2:3]), 200, 99, keys(4, 3)[2:3])
    together = sample_unmet(Ragged.from_lists(lists), 200, 99, keys(4, 3))
    assert (alone == together[2:3]).all()


def test_negatives_depend_on_seed_and_part_alone() -> None:
    toy = split(table([list(range(u, u + 5)) for u in range(50)], 1000), "strict")
    score = fixed(np.random.default_rng(0).normal(size=(50, 1000)))

    def ranks(seed: int, part: str) -> list[float]:
        evaluation: Evaluation = getattr(Evaluator(toy, seed), part)(score)
        return evaluation.sampled99_ranking.places.tolist()

    assert ranks(1, "test") == ranks(1, "test")
    assert ranks(1, "test") != ranks(2, "test")
    twin = Split(toy.data, "toy", False, toy.train, toy.test, toy.test, toy.excluded)
    evaluator = Evaluator(twin, 1)  # the same targets in both parts: only the negatives can differ
    validation, test = evaluator.validation(score), evaluator.test(score)
    assert (validation.sampled99_ranking.places != test.sampled99_ranking.places).any()


def test_fast_enough_for_every_round() -> None:
    """The size of MovieLens-1M in well under two processor seconds (0.1 s where this was written)."""
    n_users, n_items = 6040, 3706
    rng = np.random.default_rng(0)
    starts = rng.integers(0, n_items - 20, n_users)
    toy = split(table([list(range(s, s + 20)) for s in starts], n_items), "strict")
    evaluator = Evaluator(toy, 0)
    popular = torch.from_numpy(rng.normal(size=n_items))

    def score(users: Ints) -> torch.Tensor:
        return popular.expand(len(users), -1)

    begin = time.process_time()
    evaluator.validation(score)
    assert time.process_time() - begin < 2


def test_a_sample_of_users_has_all_degrees_of_activity():
    """Of 100 users with 1 … 100 items, a sample of 10 has one of each ten."""
    lengths = np.arange(1, 101)
    chosen = spread_by_activity(np.arange(100), lengths, 10, seed=4)
    assert sorted((lengths[chosen] - 1) // 10) == list(range(10))
    assert chosen.tolist() == spread_by_activity(np.arange(100), lengths, 10, seed=4).tolist()
    assert chosen.tolist() != spread_by_activity(np.arange(100), lengths, 10, seed=5).tolist()


@pytest.mark.parametrize("kept", [0, 10**6])
@pytest.mark.parametrize("chunk", [1, 10**6])
def test_neither_chunks_nor_what_is_kept_change_anything(kept, chunk, monkeypatch):
    draw = np.random.default_rng(2)
    users = np.repeat(np.arange(30), 12)
    items = np.concatenate([draw.choice(300, 12, replace=False) for _ in range(30)])
    data = Interactions.from_columns("made", users.astype(str), items.astype(str))
    parts = split(data, "strict")
    scores = torch.from_numpy(draw.integers(0, 9, size=(30, data.n_items)).astype(np.float64))
    expected = Evaluator(parts, 0)
    monkeypatch.setattr("solera.evaluate.ranking.KEPT", kept)
    found = Evaluator(parts, 0, chunk=chunk)
    for _ in range(2):
        for part in ("validation", "test"):
            one, two = (getattr(each, part)(lambda users: scores[users]) for each in (expected, found))
            assert one.full_ranking.places.tolist() == two.full_ranking.places.tolist()
            assert one.sampled99_ranking.places.tolist() == two.sampled99_ranking.places.tolist()
    sampled = Evaluator(parts, 0, validated=7)
    assert (sampled.users("validation"), sampled.users("test")) == (7, 30)
    some = sampled.validation(lambda users: scores[users]).full_ranking
    whole = expected.validation(lambda users: scores[users]).full_ranking
    assert some.places.tolist() == whole.places[np.isin(whole.users, some.users)].tolist()


def test_several_threads_rank_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of users end in any order; places and progress are in the order of the users."""
    monkeypatch.setattr("solera.evaluate.ranking.DRAWN", 7)
    draw = np.random.default_rng(4)
    parts = split(table([draw.choice(30, 6, replace=False).tolist() for _ in range(100)], 30), "strict")
    vectors, items = torch.randn(100, 8), torch.randn(8, 30)

    def score(users: Ints) -> torch.Tensor:
        time.sleep(0.002 * float(np.random.default_rng(users[0]).random()))
        return vectors[torch.from_numpy(users)] @ items

    heard: list[tuple[int, int]] = []
    one = Evaluator(parts, seed=0, chunk=60).test(score)
    three = Evaluator(parts, seed=0, chunk=60, threads=3).test(score, lambda *done: heard.append(done))
    for each in ("full_ranking", "sampled99_ranking"):
        assert np.array_equal(getattr(one, each).places, getattr(three, each).places)
    assert heard == [(min(done, 100), 100) for done in range(6, 106, 6)]
