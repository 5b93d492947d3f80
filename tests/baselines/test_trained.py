from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from planted import blocks, interactions, noise
from torch import Tensor
from torch.nn.functional import logsigmoid

from solera.baselines import Epoch
from solera.baselines.centrap import CentRAP, CentRAPConfig
from solera.baselines.lightgcn import LightGCN, LightGCNConfig, adjacency, propagate
from solera.baselines.mf import MF, MFConfig
from solera.baselines.ncf import NCF, NCFConfig
from solera.baselines.training import Draws, normal
from solera.core.errors import DataError
from solera.data.interactions import Split
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData, sample
from solera.evaluate import Evaluator, split

Trained = type[MF] | type[NCF] | type[LightGCN] | type[CentRAP]

# Settings under which each learns a few hundred samples in a second or two.
SMALL: dict[str, Any] = {"embedding_size": 8, "learning_rate": 0.02, "epochs": 40, "batch_size": 256}
CONFIGS: dict[Any, Any] = {
    MF: MFConfig(**SMALL),
    NCF: NCFConfig(**SMALL, hidden=(16, 8)),
    LightGCN: LightGCNConfig(**SMALL),
    CentRAP: CentRAPConfig(**SMALL),
}


def hits(model: MF | NCF | LightGCN | CentRAP, parts: Split, metric: str) -> float:
    got = Evaluator(parts, seed=0).test(lambda users: model.scores(users, parts.train))
    return got.full[metric]


@pytest.mark.parametrize("baseline", CONFIGS)
def test_learns_planted_blocks(baseline: Trained) -> None:
    """Chance is 0.125, and 1.0 can be reached; nothing leaks."""
    parts = split(blocks(), "strict")
    model = baseline.fit(parts, CONFIGS[baseline], seed=0)
    assert hits(model, parts, "hr@5") > 0.9


@pytest.mark.parametrize("baseline", CONFIGS)
def test_finds_nothing_in_noise(baseline: Trained) -> None:
    """Chance is 10/49; four standard deviations of 200 users are 0.11."""
    parts = split(noise(), "strict")
    model = baseline.fit(parts, CONFIGS[baseline].model_copy(update={"epochs": 15}), seed=0)
    assert hits(model, parts, "hr@10") == pytest.approx(10 / 49, abs=0.11)


@pytest.mark.parametrize("baseline", CONFIGS)
def test_the_seed_decides(baseline: Trained) -> None:
    """With two threads, so that sums whose order depends on them would show."""
    torch.set_num_threads(2)
    parts = split(blocks(), "strict")
    config = CONFIGS[baseline].model_copy(update={"epochs": 3})
    users = np.arange(80)
    first, again, other = (baseline.fit(parts, config, seed).scores(users, parts.train) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("baseline", CONFIGS)
def test_one_user_is_scored_as_in_a_batch(baseline: Trained) -> None:
    parts = split(blocks(), "strict")
    model = baseline.fit(parts, CONFIGS[baseline].model_copy(update={"epochs": 1}))
    batch = model.scores(np.array([5, 3, 79]), parts.train)
    assert batch.shape == (3, 48)
    for row, user in enumerate((5, 3, 79)):
        assert torch.allclose(model.scores(np.array([user]), parts.train)[0], batch[row], atol=1e-6)


def test_centrap_finds_in_noise_what_the_leak_tells() -> None:
    """The same model on the same noise: under `strict` it is lost, under `paper` it has the answer."""
    config = CentRAPConfig(**SMALL | {"epochs": 20, "batch_size": 2048}, own_learning_rate=0.05)
    found = {}
    for protocol in ("strict", "paper"):
        parts = split(noise(), protocol)
        found[protocol] = hits(CentRAP.fit(parts, config), parts, "hr@10")
    assert found["strict"] < 0.32
    assert found["paper"] > 0.95


# The samples


def rows(*columns: Tensor) -> list[tuple[float, ...]]:
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("protocol", ["strict", "paper"])
def test_samples_are_those_of_the_federated_methods(protocol: str) -> None:
    """The draws of a round: a held-out item may be a negative under `strict` and never under `paper`."""
    parts = split(blocks(), protocol)
    n_users, n_items = parts.data.n_users, parts.data.n_items
    drawn = sample(ClientData(parts.train, parts.excluded, n_items), np.arange(n_users), 4, 7, 2)
    labels = np.concatenate(
        [np.arange(n) < p for n, p in zip(drawn.items.lengths, drawn.positives, strict=True)]
    )
    wanted = rows(*map(torch.from_numpy, (drawn.items.rows, drawn.items.values, labels.astype(np.float32))))
    draws = Draws(parts, negatives=4, seed=7)
    columns = draws.labelled(2)
    users = columns[0]
    assert rows(*columns) == wanted
    assert users.tolist() != sorted(users.tolist())
    assert rows(*draws.labelled(3)) != wanted
    held_out = set(zip(parts.test.rows.tolist(), parts.test.values.tolist(), strict=True))
    met = {(u, i) for u, i, _ in wanted} & held_out
    assert bool(met) == (protocol == "strict")


def test_pairs_have_every_positive_and_every_negative() -> None:
    parts = split(blocks(), "strict")
    draws = Draws(parts, negatives=3, seed=7)
    users, positives, negatives = draws.pairs(2)
    of_users, items, labels = draws.labelled(2)
    right = labels == 1
    assert rows(users, positives) == sorted(rows(of_users[right], items[right]) * 3)
    assert rows(users, negatives) == rows(of_users[~right], items[~right])


def test_pairs_are_random() -> None:
    """Users of two items: the older one meets the smaller of two negatives as often as the newer one."""
    lists = [[0, 1, 2, 3] for _ in range(600)]
    parts = split(interactions(lists, 30), "strict")
    users, positives, negatives = (column.numpy() for column in Draws(parts, 1, seed=0).pairs(0))
    order = np.lexsort((positives, users))
    older, newer = negatives[order].reshape(-1, 2).T
    unequal = older != newer
    assert 0.4 < (older < newer)[unequal].mean() < 0.6


# The equations: the loss of one batch of everything, before any step, as the docstrings have it


def first_loss(baseline: Trained, parts: Split, **options: float) -> tuple[float, list[Tensor]]:
    """The reported loss, and the samples it was computed on."""
    seen: list[Epoch] = []
    config = type(CONFIGS[baseline])(embedding_size=4, epochs=1, batch_size=10**6, **options)
    baseline.fit(parts, config, 0, seen.append)
    draws = Draws(parts, config.negatives, 0)
    columns = draws.pairs(0) if baseline is LightGCN else draws.labelled(0)
    assert [entry[:2] for entry in seen] == [(1, 1)]
    assert seen[0].loss is not None
    return seen[0].loss, list(columns)


def entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return -(labels * torch.sigmoid(logits).log() + (1 - labels) * torch.sigmoid(-logits).log()).mean()


def test_loss_of_mf() -> None:
    parts = split(blocks(), "strict")
    got, (u, i, labels) = first_loss(MF, parts, reg=0.5)
    p, q = normal(0, "users", 80, 4)[u], normal(0, "items", 48, 4)[i]
    wanted = entropy((p * q).sum(1), labels) + 0.5 * (p.norm(dim=1) ** 2 + q.norm(dim=1) ** 2).mean()
    assert got == pytest.approx(wanted.item(), rel=1e-5)


def test_loss_of_lightgcn() -> None:
    parts = split(blocks(), "strict")
    got, (u, i, j) = first_loss(LightGCN, parts, reg=0.5, layers=2)
    start = normal(0, "nodes", 128, 4)
    graph = adjacency(parts.train, 48).to_dense()
    e = (start + graph @ start + graph @ graph @ start) / 3
    size = start[u].square().sum(1) + start[i + 80].square().sum(1) + start[j + 80].square().sum(1)
    difference = (e[u] * e[i + 80]).sum(1) - (e[u] * e[j + 80]).sum(1)
    assert got == pytest.approx((0.25 * size - logsigmoid(difference)).mean().item(), rel=1e-5)


def test_loss_of_centrap() -> None:
    """Before the first step D and b are zero."""
    parts = split(blocks(), "strict")
    got, (u, i, labels) = first_loss(CentRAP, parts, reg=0.5, independence=2.0, sparsity=3.0)
    w, c = normal(0, "weights", 80, 4)[u], normal(0, "shared", 48, 4)[i]
    wanted = entropy((w * c).sum(1), labels) - 2 * (c**2).mean() + 3 * c.abs().mean()
    wanted = wanted + 0.5 * ((w**2).sum(1) + (c**2).sum(1)).mean()
    assert got == pytest.approx(wanted.item(), rel=1e-5)


def test_centrap_trains_what_it_samples_and_scores_by_its_equation() -> None:
    parts = split(blocks(), "paper")
    model = CentRAP.fit(parts, CentRAPConfig(embedding_size=4, epochs=2, own_learning_rate=0.1))
    own = model.own.view(80, 48, 4)
    test = (parts.test.rows, parts.test.values)
    assert own[test].abs().max() == 0  # never a negative under this protocol, hence never touched
    assert own[parts.train.rows, parts.train.values].abs().min() > 0
    wanted = torch.einsum("ud,uid->ui", model.weights, model.shared + own) + model.biases[:, None]
    assert torch.allclose(model.scores(np.arange(80), parts.train), wanted, atol=1e-5)


def test_ncf_is_a_perceptron_on_both_vectors() -> None:
    parts = split(blocks(), "strict")
    model = NCF.fit(parts, NCFConfig(embedding_size=4, hidden=(6, 5), epochs=1))
    (w1, b1), (w2, b2), (w3, b3) = model.layers
    x = torch.cat([model.users[7], model.items[11]])
    wanted = w3 @ torch.relu(w2 @ torch.relu(w1 @ x + b1) + b2) + b3
    assert w1.shape == (6, 8)
    assert b1.abs().min() > 0
    assert model.scores(np.array([7]), parts.train)[0, 11].item() == pytest.approx(wanted.item(), abs=1e-6)


# The graph


def test_lightgcn_propagates_by_hand() -> None:
    """User 0 has items 0 and 1 (one of them twice), user 1 has item 1, user 2 nothing.

    Degrees: users 2, 1, 0, items 1, 2. Â is 1/√(2·1) between user 0 and item 0, 1/√(2·2) between user 0 and
    item 1, 1/√(1·2) between user 1 and item 1. With E⁰ = (1, 2, 3, 4, 5) one layer gives, for user 0,
    4/√2 + 5/2; for user 1, 5/√2; for user 2, 0; for item 0, 1/√2; for item 1, 1/2 + 2/√2.
    """
    graph = adjacency(Ragged.from_lists([[0, 1, 1], [1], []]), 2)
    start = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    root = 2**0.5
    layer = torch.tensor([[4 / root + 2.5], [5 / root], [0], [1 / root], [0.5 + 2 / root]])
    assert torch.allclose(propagate(graph, start, 1), (start + layer) / 2)
    assert torch.equal(propagate(graph, start, 0), start)


def test_lightgcn_gradient_is_that_of_dense_algebra() -> None:
    rng = np.random.default_rng(0)
    graph = adjacency(Ragged.from_lists([rng.permutation(9)[:3].tolist() for _ in range(7)]), 9)
    start = torch.from_numpy(rng.standard_normal((16, 3), dtype=np.float32)).requires_grad_()
    weights = torch.from_numpy(rng.standard_normal((16, 3), dtype=np.float32))
    dense = graph.to_dense()
    plain = (start + dense @ start + dense @ dense @ start + dense @ dense @ dense @ start) / 4
    got, wanted = (
        torch.autograd.grad((e * weights).sum(), start)[0] for e in (propagate(graph, start, 3), plain)
    )
    assert torch.allclose(got, wanted, atol=1e-6)


# What does not fit


def test_centrap_refuses_tables_that_do_not_fit() -> None:
    """1,000 users × 20,000 items × 32 floats are 2.56 GB; 2 GB are 25 floats each."""
    data = interactions([[0, 1, 2]] * 1000, 20_000)
    parts = split(data, "strict")
    with pytest.raises(DataError, match=r"2\.6 GB for 'planted'") as caught:
        CentRAP.fit(parts)
    assert "-o embedding_size=25" in caught.value.hint
    huge = replace(parts, data=interactions([[0, 1, 2]] * 1000, 1_000_000))
    with pytest.raises(DataError) as caught:
        CentRAP.fit(huge)
    assert "embedding_size" not in caught.value.hint
    assert "--min-interactions" in caught.value.hint
