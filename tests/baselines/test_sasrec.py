from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from planted import blocks, interactions, noise
from torch import Tensor
from torch.nn.functional import cross_entropy

from solera.baselines import SASRec, SASRecConfig
from solera.baselines.sasrec import CrossEntropy, Dropout, Network, sampled_cross_entropy, windows
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.split import Split, history
from solera.evaluate import Evaluator, split

SMALL: dict[str, Any] = {
    "embedding_size": 16,
    "learning_rate": 0.01,
    "batch_size": 16,
    "max_length": 8,
    "dropout": 0.1,
}


def circle(n_users: int = 120, n_items: int = 30) -> Interactions:
    """Item i is followed by i + 1, and the last by the first; users begin anywhere."""
    rng = np.random.default_rng(0)
    lists = [((rng.integers(n_items) + np.arange(rng.integers(5, 15))) % n_items) for _ in range(n_users)]
    return interactions([row.tolist() for row in lists], n_items)


def hits(model: SASRec, parts: Split, metric: str) -> float:
    return (
        Evaluator(parts, seed=0).test(lambda users: model.scores(users, history(parts, "test"))).full[metric]
    )


def network(**options: object) -> Network:
    torch.manual_seed(0)
    made = Network(20, SASRecConfig(**SMALL | options), np.random.default_rng(0)).eval()
    made.items.data *= 50  # far from the start, where every state is nearly the same
    return made


@pytest.mark.parametrize("negatives", [30, 10])
def test_learns_what_follows(negatives: int) -> None:
    """The next item has the top score for every last item, with the softmax over all and over a sample."""
    parts = split(circle(), "strict")
    model = SASRec.fit(parts, SASRecConfig(**SMALL, epochs=20, negatives=negatives))
    assert hits(model, parts, "hr@5") == 1
    last = np.arange(30)
    histories = Ragged.from_lists([[(i - 2) % 30, (i - 1) % 30, i] for i in last.tolist()])
    assert model.scores(last, histories).argmax(1).tolist() == ((last + 1) % 30).tolist()


def test_learns_planted_blocks() -> None:
    """Chance is 0.125, and 1.0 can be reached."""
    parts = split(blocks(), "strict")
    assert hits(SASRec.fit(parts, SASRecConfig(**SMALL, epochs=40)), parts, "hr@5") > 0.9


def test_finds_nothing_in_noise() -> None:
    """Chance is 10/49, the validation item apart; four standard deviations of 200 users are 0.11."""
    parts = split(noise(), "strict")
    assert hits(SASRec.fit(parts, SASRecConfig(**SMALL, epochs=10)), parts, "hr@10") == pytest.approx(
        10 / 49, abs=0.11
    )


@pytest.mark.parametrize("negatives", [30, 10])
def test_the_seed_decides(negatives: int) -> None:
    """With two threads, and whatever has been drawn elsewhere before."""
    torch.set_num_threads(2)
    parts = split(circle(), "strict")
    config = SASRecConfig(**SMALL | {"batch_size": 64}, epochs=1, negatives=negatives)
    scores = []
    for seed in (1, 1, 2):
        scores.append(SASRec.fit(parts, config, seed).scores(np.arange(120), parts.train))
        torch.rand(3)
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])


def test_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    SASRec.fit(split(circle(), "strict"), SASRecConfig(**SMALL, epochs=1))
    assert torch.equal(torch.rand(1), wanted)


# What a state and a score depend on


def test_no_state_sees_later_items() -> None:
    net = network(layers=3)
    items = torch.tensor([[20, 3, 1, 4, 1, 5, 9, 2]])
    states = net(items)
    for place in range(8):
        changed = items.clone()
        changed[0, place] = 7
        same = (net(changed) - states).abs().amax(2)[0] < 1e-5
        assert same.tolist() == [earlier < place for earlier in range(8)]


def test_padding_and_company_do_not_matter() -> None:
    """Long, short and empty histories together and alone."""
    model = SASRec(network(), 8)
    lists = Ragged.from_lists([[3, 1], list(range(19)), [], [5], [2] * 7, [2] * 8])
    users = np.array([4, 1, 2, 0, 5, 3])
    together = model.scores(users, lists)
    assert together.shape == (6, 20)
    for row, user in enumerate(users):
        alone = model.scores(np.array([user]), lists)[0]
        assert torch.allclose(alone, together[row], rtol=1e-5, atol=1e-4)
    assert model.scores(np.array([], dtype=np.int64), lists).shape == (0, 20)


def test_the_last_items_are_read() -> None:
    model = SASRec(network(), 8)
    lists = Ragged.from_lists(
        [[9, 1, 2, 3, 4, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8], [9, 2, 3, 4, 5, 6, 7, 8, 1]]
    )
    longer, same, other = model.scores(np.arange(3), lists)
    assert torch.equal(longer, same)
    assert not torch.allclose(longer, other, atol=0.1)


# The windows


def test_windows_by_hand() -> None:
    """Six places of which five are asked, two in a window, none longer than four; then two and one."""
    cut = windows(Ragged.of_lengths(np.array([6, 2, 1]), np.arange(9)), 4)
    assert cut.tolist() == [[1, 3, 5], [0, 1, 3], [0, 0, 1], [6, 6, 7]]


@pytest.mark.parametrize("max_length", [2, 3, 8, 9, 100])
def test_every_item_is_asked_once(max_length: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 40, 50)
    histories = Ragged.of_lengths(lengths, np.arange(lengths.sum()))
    cut = windows(histories, max_length)
    asked = np.sort(np.concatenate([np.arange(start, end) for _, start, end in cut]))
    last = histories.offsets[1:] - 1
    assert asked.tolist() == np.setdiff1d(histories.values, last).tolist()
    assert (cut[:, 2] - cut[:, 0]).max() <= max_length
    assert (histories.rows[cut[:, 0]] == histories.rows[cut[:, 2]]).all()


# The losses and dropout


def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return (
        torch.randn(50, 6, requires_grad=True),
        torch.randn(11, 6, requires_grad=True),
        torch.randint(11, (50,)),
    )


def test_cross_entropy_and_its_gradient_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solera.baselines.sasrec.CHUNK", 77)  # seven states at a time, one in the last chunk
    states, items, targets = batch()
    wanted = cross_entropy(states @ items.T, targets)
    got = CrossEntropy.apply(states, items, targets)
    assert got.item() == pytest.approx(wanted.item(), rel=1e-6)
    pairs = zip(*(torch.autograd.grad(3 * loss, (states, items)) for loss in (got, wanted)), strict=True)
    assert all(torch.allclose(ours, theirs, atol=1e-6) for ours, theirs in pairs)


def test_sampled_cross_entropy_of_every_item_once_is_nearly_the_whole() -> None:
    """All eleven as negatives, of which the target is none: ten in eleven parts, weighed 10/11 again."""
    states, items, targets = batch()
    logits = states @ items.T
    others = logits.scatter(1, targets[:, None], -torch.inf).exp().sum(1) * 10 / 11
    own = logits.gather(1, targets[:, None])[:, 0]
    wanted = ((own.exp() + others).log() - own).mean()
    got = sampled_cross_entropy(states, items, targets, torch.arange(11), 11)
    assert got.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_dropout_keeps_the_mean() -> None:
    drop = Dropout(0.25, np.random.default_rng(0))
    out = drop(torch.ones(200, 200))
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert torch.equal(drop.eval()(torch.ones(3)), torch.ones(3))
