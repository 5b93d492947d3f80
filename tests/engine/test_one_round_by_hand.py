"""One round of each method, worked out by hand.

Three users, four items, two dimensions. Every user may draw just one item as a negative:

    user   positives   never negative   negatives
    0      0           0 1 2            3
    1      3           1 2 3            0
    2      1 2         0 1 2            3 3

One negative per positive and one batch: users 0 and 1 have two samples, user 2 has four.
"""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
import pytest
import torch

from solera.core.method import Method
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.block import BlockTraining
from solera.engine.local_training import LocalTraining
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import RoundResult, Simulation
from solera.methods import build

DATA = ClientData(
    Ragged.from_lists([[0], [3], [1, 2]]), Ragged.from_lists([[0, 1, 2], [1, 2, 3], [0, 1, 2]]), n_items=4
)
OPTIONS = {"embedding_size": 2, "negatives": 1, "batch_size": 256, "local_epochs": 1}
L = log(3)  # σ(L) = 3/4, σ(0) = 1/2, σ(−L) = 1/4; −ln of these are ln 4 − L, ln 2 and ln 4
ITEMS = [[L, 1.0], [0.0, -L], [1.0, 0.0], [-L, 2.0]]

both_engines = pytest.mark.parametrize(
    "train", [train_one_by_one, BlockTraining(threads=1)], ids=["reference", "block"]
)


def one_round(
    method: Method, train: LocalTraining, personal: dict[str, Any]
) -> tuple[RoundResult, Simulation]:
    simulation = Simulation(method, DATA, train, seed=0, device=torch.device("cpu"), dtype=torch.float64)
    doubles = {name: torch.tensor(values, dtype=torch.float64) for name, values in personal.items()}
    shared = {"items": torch.tensor(ITEMS, dtype=torch.float64)}
    simulation.restore(simulation.state.shared | shared, simulation.state.personal.tensors() | doubles)
    return simulation.run_round(0), simulation


def approx(expected) -> object:
    return pytest.approx(np.array(expected), rel=1e-12, abs=1e-12)


@both_engines
def test_fedmf(train: LocalTraining) -> None:
    """SGD of step 1 from p_0 = (1, 0), p_1 = (1, 0), p_2 = (0, 1), with L = ln 3.

    With logit x = ⟨p, q_i⟩ and g = (σ(x) − y) / n, n being the user's samples: the gradient is Σ g q_i for
    p, and g p, summed over the samples of item i, for q_i. Both are taken at the values before the step.

        user 0, n = 2   item 0, y = 1: x = L,  g = (3/4 − 1)/2 = −1/8
                        item 3, y = 0: x = −L, g = (1/4 − 0)/2 = 1/8
            p_0  = (1, 0) + (L, 1)/8 − (−L, 2)/8 = (1 + L/4, −1/8)
            q_0 += (1/8, 0),  q_3 −= (1/8, 0)
            loss = (−ln 3/4 − ln 3/4)/2 = ln 4 − L
        user 1, n = 2   item 3, y = 1: x = −L, g = (1/4 − 1)/2 = −3/8
                        item 0, y = 0: x = L,  g = (3/4 − 0)/2 = 3/8
            p_1  = (1, 0) + 3 (−L, 2)/8 − 3 (L, 1)/8 = (1 − 3L/4, 3/8)
            q_3 += (3/8, 0),  q_0 −= (3/8, 0)
            loss = (−ln 1/4 − ln 1/4)/2 = ln 4
        user 2, n = 4   item 1, y = 1: x = −L, g = (1/4 − 1)/4 = −3/16
                        item 2, y = 1: x = 0,  g = (1/2 − 1)/4 = −1/8
                        item 3, y = 0: x = 2, twice, each g = σ(2)/4; together s = σ(2)/2
            p_2  = (0, 1) + 3 (0, −L)/16 + (1, 0)/8 − s (−L, 2) = (1/8 + s L, 1 − 3L/16 − 2s)
            q_1 += (0, 3/16),  q_2 += (0, 1/8),  q_3 −= (0, s)
            loss = (ln 4 + ln 2 + 2 ln(1 + e²))/4

    The server divides the sum of the changes by three clients, however many touched the row.
    Bytes up: users 0 and 1 send two rows, user 2 three, each 4 + 2 · 4 bytes; down: 4 · 2 floats.
    """
    method = build("fedmf", OPTIONS | {"optimizer": "sgd", "learning_rate": 1.0})
    report, simulation = one_round(method, train, {"user": [[1, 0], [1, 0], [0, 1]]})
    s = 1 / (1 + exp(-2)) / 2
    assert simulation.state.personal.whole["user"].numpy() == approx(
        [[1 + L / 4, -1 / 8], [1 - 3 * L / 4, 3 / 8], [1 / 8 + s * L, 1 - 3 * L / 16 - 2 * s]]
    )
    assert simulation.state.shared["items"].numpy() == approx(
        [
            [L + (1 / 8 - 3 / 8) / 3, 1],
            [0, -L + 3 / 16 / 3],
            [1, 1 / 8 / 3],
            [-L + (-1 / 8 + 3 / 8) / 3, 2 - s / 3],
        ]
    )
    losses = [log(4) - L, log(4), (log(4) + log(2) + 2 * log(1 + exp(2))) / 4]
    assert report.loss == pytest.approx(sum(losses) / 3, rel=1e-12)
    assert (report.clients, report.bytes_up, report.bytes_down) == (3, (2 + 2 + 3) * 12 / 3, 32)
    # Served with the aggregate.
    users, items = simulation.state.personal.whole["user"], simulation.state.shared["items"]
    assert simulation.scores(np.arange(3)).numpy() == approx((users @ items.T).numpy())


@both_engines
def test_fedmf_weighted(train: LocalTraining) -> None:
    """As above, where user 2 with two training items weighs twice as much as the others: 1/4, 1/4 and 1/2."""
    weighted = OPTIONS | {"optimizer": "sgd", "learning_rate": 1.0, "weighted": True}
    _, simulation = one_round(build("fedmf", weighted), train, {"user": [[1, 0], [1, 0], [0, 1]]})
    s = sigmoid(2) / 2
    assert simulation.state.shared["items"].numpy() == approx(
        [
            [L + (1 / 8 - 3 / 8) / 4, 1],
            [0, -L + 3 / 16 / 2],
            [1, 1 / 8 / 2],
            [-L + (-1 / 8 + 3 / 8) / 4, 2 - s / 2],
        ]
    )


@both_engines
def test_fedmf_with_a_rate_for_items(train: LocalTraining) -> None:
    """As above with item_rate = 1/2: the step of the four items is 1 · 4 · 1/2 = 2, of users 1."""
    sgd = OPTIONS | {"learning_rate": 1.0, "item_rate": 0.5}
    _, simulation = one_round(build("fedmf", sgd), train, {"user": [[1, 0], [1, 0], [0, 1]]})
    s = sigmoid(2) / 2
    assert simulation.state.personal.whole["user"].numpy() == approx(
        [[1 + L / 4, -1 / 8], [1 - 3 * L / 4, 3 / 8], [1 / 8 + s * L, 1 - 3 * L / 16 - 2 * s]]
    )
    assert simulation.state.shared["items"].numpy() == approx(
        [
            [L + 2 * (1 / 8 - 3 / 8) / 3, 1],
            [0, -L + 2 * 3 / 16 / 3],
            [1, 2 * 1 / 8 / 3],
            [-L + 2 * (-1 / 8 + 3 / 8) / 3, 2 - 2 * s / 3],
        ]
    )


@both_engines
def test_fedncf_with_rates_for_users_and_items(train: LocalTraining) -> None:
    """One step: beside a single rate, users move item_rate = 3 times as far and four items 12 times."""
    start = {"user": [[1, 0], [1, 0], [0, 1]]}
    moved = {}
    for rate in (0.0, 3.0):
        options = OPTIONS | {"learning_rate": 0.5, "item_rate": rate}
        _, simulation = one_round(build("fedncf", options), train, start)
        moved[rate] = {
            "user": simulation.state.personal.whole["user"].numpy() - np.array(start["user"]),
            "items": simulation.state.shared["items"].numpy() - np.array(ITEMS),
            "weights": simulation.state.shared["mlp.2.weight"].numpy(),
        }
    for name, times in {"user": 3, "items": 12, "weights": 1}.items():
        assert np.abs(moved[3.0][name]).max() > 0
        assert moved[3.0][name] == approx(times * moved[0.0][name])


@both_engines
def test_fedmf_with_penalty(train: LocalTraining) -> None:
    """As above with reg = 1/4: every touched value v moves by −v/4 besides; rows nobody touches stay.

    Items 1 and 2 are touched by user 2 alone, items 0 by users 0 and 1, item 3 by all three, so the mean
    takes 1, 1, 2 and 3 thirds of the quarter away.
    """
    method = build("fedmf", OPTIONS | {"optimizer": "sgd", "learning_rate": 1.0, "reg": 0.25})
    _, simulation = one_round(method, train, {"user": [[1, 0], [1, 0], [0, 1]]})
    s = 1 / (1 + exp(-2)) / 2
    assert simulation.state.personal.whole["user"].numpy() == approx(
        [[3 / 4 + L / 4, -1 / 8], [3 / 4 - 3 * L / 4, 3 / 8], [1 / 8 + s * L, 3 / 4 - 3 * L / 16 - 2 * s]]
    )
    assert simulation.state.shared["items"].numpy() == approx(
        [
            [L * (1 - 2 / 12) - 1 / 12, 1 - 2 / 12],
            [0, -L * (1 - 1 / 12) + 1 / 16],
            [1 - 1 / 12, 1 / 24],
            [-L * (1 - 3 / 12) + 1 / 12, 2 * (1 - 3 / 12) - s / 3],
        ]
    )


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


@both_engines
def test_pfedrec(train: LocalTraining) -> None:
    """η = 1/2 and item rate 1/2, so η' = 1/2 · 4 items · 1/2 = 1.

    Start: w_0 = (1, 0), b_0 = 0; w_1 = (0, 0), b_1 = L; w_2 = (0, 1), b_2 = 0, with L = ln 3.
    First the score function steps; g = (σ(⟨w, q_i⟩ + b) − y)/n is the gradient for b, g q_i for w:

        user 0   item 0, y = 1: x = L,  g = −1/8;   item 3, y = 0: x = −L, g = 1/8
            w_0 = (1, 0) + [(L, 1) − (−L, 2)]/16 = (1 + L/8, −1/16),   b_0 = 0 + (1/8 − 1/8)/2 = 0
        user 1   item 3, y = 1: x = L,  g = −1/8;   item 0, y = 0: x = L,  g = 3/8
            w_1 = [(−L, 2) − 3 (L, 1)]/16 = (−L/4, −1/16),   b_1 = L + (1/8 − 3/8)/2 = L − 1/8
        user 2   item 1, y = 1: x = −L, g = −3/16;   item 2, y = 1: x = 0, g = −1/8;
                 item 3, y = 0, twice: x = 2, together s = σ(2)/2
            w_2 = (0, 1) + [3 (0, −L)/16 + (1, 0)/8 − s (−L, 2)]/2 = (1/16 + s L/2, 1 − 3L/32 − s)
            b_2 = (3/16 + 1/8 − s)/2 = 5/32 − s/2

    Then the items, by the score function just found: q_i −= η' Σ g' w over the samples of item i, with
    g' = (σ(⟨w, q_i⟩ + b) − y)/n. That is written out below, sample by sample. Every client keeps its q_i;
    the server's are the old ones plus a third of the changes. The loss reported is that of the last move.
    """
    method = build("pfedrec", OPTIONS | {"learning_rate": 0.5, "item_rate": 0.5})
    start = {"score.weight": [[1, 0], [0, 0], [0, 1]], "score.bias": [[0], [L], [0]]}
    report, simulation = one_round(method, train, start)
    s = sigmoid(2) / 2
    w = [[1 + L / 8, -1 / 16], [-L / 4, -1 / 16], [1 / 16 + s * L / 2, 1 - 3 * L / 32 - s]]
    b = [0, L - 1 / 8, 5 / 32 - s / 2]
    personal = simulation.state.personal
    assert personal.whole["score.weight"].numpy() == approx(w)
    assert personal.whole["score.bias"].numpy() == approx([[value] for value in b])

    def logit(user: int, item: int) -> float:
        return w[user][0] * ITEMS[item][0] + w[user][1] * ITEMS[item][1] + b[user]

    g = {  # (user, item): the samples' g' added up
        (0, 0): (sigmoid(logit(0, 0)) - 1) / 2,
        (0, 3): sigmoid(logit(0, 3)) / 2,
        (1, 0): sigmoid(logit(1, 0)) / 2,
        (1, 3): (sigmoid(logit(1, 3)) - 1) / 2,
        (2, 1): (sigmoid(logit(2, 1)) - 1) / 4,
        (2, 2): (sigmoid(logit(2, 2)) - 1) / 4,
        (2, 3): 2 * sigmoid(logit(2, 3)) / 4,
    }
    change = {(u, i): [-value * w[u][0], -value * w[u][1]] for (u, i), value in g.items()}
    kept = {(u, i): [ITEMS[i][0] + dx, ITEMS[i][1] + dy] for (u, i), (dx, dy) in change.items()}
    for user, items in enumerate([[0, 3], [0, 3], [1, 2, 3]]):
        assert personal.rows["items"][user].items.tolist() == items
        assert personal.rows["items"][user].values.numpy() == approx([kept[user, i] for i in items])

    assert simulation.state.shared["items"].numpy() == approx(
        [
            [
                ITEMS[i][axis] + sum(d[axis] for (_, item), d in change.items() if item == i) / 3
                for axis in (0, 1)
            ]
            for i in range(4)
        ]
    )
    losses = [
        (-log(sigmoid(logit(0, 0))) - log(1 - sigmoid(logit(0, 3)))) / 2,
        (-log(1 - sigmoid(logit(1, 0))) - log(sigmoid(logit(1, 3)))) / 2,
        (-log(sigmoid(logit(2, 1))) - log(sigmoid(logit(2, 2))) - 2 * log(1 - sigmoid(logit(2, 3)))) / 4,
    ]
    assert report.loss == pytest.approx(sum(losses) / 3, rel=1e-12)

    # Served with the client's own rows where it has them, with the aggregate elsewhere.
    table = simulation.state.shared["items"].tolist()
    served = [[kept.get((user, i), table[i]) for i in range(4)] for user in range(3)]
    expected = [[w[u][0] * q[0] + w[u][1] * q[1] + b[u] for q in served[u]] for u in range(3)]
    assert simulation.scores(np.arange(3)).numpy() == approx(expected)


@both_engines
def test_fedrap(train: LocalTraining) -> None:
    """One step with η = 1 for the scorer, η' = 2 for the tables, λ = 0.3 and μ = 0.4, from D = 0.

    With D = 0 the logits are those of C alone; s = samples of the item / n is its weight in the batch, d = 2:

        ∂/∂C_i = g w + s (2λ (D − C_i) + μ sign C_i)/d = g w − s λ C_i + s μ/2 sign C_i
        ∂/∂D_i = g w − s 2λ (D − C_i)/d                = g w + s λ C_i

        user 0, w = (1, 0), b = 0, s = 1/2:
            item 0, y = 1: x = L,  g = −1/8;   item 3, y = 0: x = −L, g = 1/8
            w_0 = (1, 0) + (L, 1)/8 − (−L, 2)/8 = (1 + L/4, −1/8),   b_0 = 0
            C_0 = (L, 1) − 2 [(−1/8, 0) − 0.15 (L, 1) + 0.1 (1, 1)]  = (1.3 L + 0.05, 1.1)
            C_3 = (−L, 2) − 2 [(1/8, 0) − 0.15 (−L, 2) + 0.1 (−1, 1)] = (−1.3 L − 0.05, 2.4)
            D_0 = −2 [(−1/8, 0) + 0.15 (L, 1)]  = (1/4 − 0.3 L, −0.3)
            D_3 = −2 [(1/8, 0) + 0.15 (−L, 2)]  = (−1/4 + 0.3 L, −0.6)
        user 1, w = (0, 0), b = L, s = 1/2:  item 3, y = 1: x = L, g = −1/8;  item 0, y = 0: x = L, g = 3/8
            w_1 = (−L, 2)/8 − 3 (L, 1)/8 = (−L/2, −1/8),   b_1 = L − 1/4
            C_0 = (L, 1) − 2 [−0.15 (L, 1) + 0.1 (1, 1)]   = (1.3 L − 0.2, 1.1)
            C_3 = (−L, 2) − 2 [−0.15 (−L, 2) + 0.1 (−1, 1)] = (−1.3 L + 0.2, 2.4)
        user 2, w = (0, 0), b = 0: x = 0 everywhere. Items 1 and 2, y = 1: g = −1/8, s = 1/4;
                item 3, y = 0, twice: g = 1/4, s = 1/2
            w_2 = [(0, −L) + (1, 0)]/8 − (−L, 2)/4 = (1/8 + L/4, −L/8 − 1/2),   b_2 = 1/4 − 1/4 = 0
            C_1 = (0, −L) − 2 [−0.075 (0, −L) + 0.05 (0, −1)] = (0, −1.15 L + 0.1)
            C_2 = (1, 0) − 2 [−0.075 (1, 0) + 0.05 (1, 0)]    = (1.05, 0)
            C_3 as user 1's

    The server's C is the old one plus a third of the changes.
    """
    options = {"learning_rate": 1, "item_learning_rate": 2, "reg": 0, "curriculum": "fixed"}
    method = build("fedrap", OPTIONS | options | {"independence": 0.3, "sparsity": 0.4})
    start = {"score.weight": [[1, 0], [0, 0], [0, 0]], "score.bias": [[0], [L], [0]]}
    report, simulation = one_round(method, train, start | {"own": np.zeros((3, 4, 2))})

    personal = simulation.state.personal
    weights = [[1 + L / 4, -1 / 8], [-L / 2, -1 / 8], [1 / 8 + L / 4, -L / 8 - 1 / 2]]
    assert personal.whole["score.weight"].numpy() == approx(weights)
    assert personal.whole["score.bias"].numpy() == approx([[0], [L - 1 / 4], [0]])
    own = personal.tables["own"][0].numpy()
    assert own == approx([[1 / 4 - 0.3 * L, -0.3], [0, 0], [0, 0], [-1 / 4 + 0.3 * L, -0.6]])
    third = [-1.3 * L + 0.2, 2.4]
    moved = {
        0: [[1.3 * L + 0.05, 1.1], [1.3 * L - 0.2, 1.1]],
        1: [[0, -1.15 * L + 0.1]],
        2: [[1.05, 0]],
        3: [[-1.3 * L - 0.05, 2.4], third, third],
    }
    expected = [
        [ITEMS[i][axis] + sum(c[axis] - ITEMS[i][axis] for c in moved[i]) / 3 for axis in (0, 1)]
        for i in range(4)
    ]
    assert simulation.state.shared["items"].numpy() == approx(expected)
    fits = [log(4) - L, (log(4) - L + log(4)) / 2, log(2)]
    assert report.loss == pytest.approx(sum(fits) / 3, rel=1e-12)


def adam_once(value: float, gradient: float, rate: float) -> float:
    """Adam's first step: both bias corrections cancel the constants, and rate · g / (|g| + ε) is left."""
    return value - rate * gradient / (abs(gradient) + 1e-8)


@both_engines
def test_pfedclr(train: LocalTraining) -> None:
    """One epoch of each step, rank 1, from p_0 = (1, 0), p_1 = (1, 0), p_2 = (0, 1), A = 0 and B = ((1, 2)).

    Step 1 is FedMF's gradient of the items alone, at the old p: g p for each item (see test_fedmf):

        user 0: item 0: −1/8 p, item 3: 1/8 p        user 1: item 3: −3/8 p, item 0: 3/8 p
        user 2: item 1: −3/16 p, item 2: −1/8 p, item 3: σ(2)/2 p

    Adam's first step is the rate against the sign of each coordinate (ε apart), and 0 where p is 0. So with
    η = 0.1 user 0's q_0 becomes (L + 0.1, 1) and its q_3 (−L − 0.1, 2); user 1 moves them the other way.
    The server weighs by training items: (1, 1, 2)/4.

    Step 2 has q_i + A B = q_i, as A is 0, at the q_i just found; with g' = (σ(⟨p, q_i⟩) − y)/n:

        ∂p = Σ g' q_i,   ∂a_i = g' ⟨p, B⟩,   ∂B = Σ a_i g' p = 0

    so B stays, p and A move by their rates, 0.1 and 0.2, against the sign of their gradients. They are
    written out below.
    """
    options = {"learning_rate": 0.1, "buffer_learning_rate": 0.2, "rank": 1, "clients_per_round": 1.0}
    method = build("pfedclr", OPTIONS | options)
    p, b = [[1, 0], [1, 0], [0, 1]], [1, 2]
    start = {"user": p, "buffer.b": [[b]] * 3}
    _, simulation = one_round(method, train, start)

    samples = {0: [(0, 1), (3, 0)], 1: [(3, 1), (0, 0)], 2: [(1, 1), (2, 1), (3, 0), (3, 0)]}
    table, totals = {}, [[0.0, 0.0] for _ in ITEMS]
    for user, mine in samples.items():
        for item in {item for item, _ in mine}:
            x = sum(a * q for a, q in zip(p[user], ITEMS[item], strict=True))
            g = sum(sigmoid(x) - y for i, y in mine if i == item) / len(mine)
            moved = [adam_once(q, g * a, 0.1) for q, a in zip(ITEMS[item], p[user], strict=True)]
            table[user, item] = moved
            for axis in (0, 1):
                totals[item][axis] += len(mine) / 2 * (moved[axis] - ITEMS[item][axis]) / 4
    assert table[0, 0] == pytest.approx([L + 0.1, 1], abs=1e-7)
    expected = [[ITEMS[i][axis] + totals[i][axis] for axis in (0, 1)] for i in range(4)]
    assert simulation.state.shared["items"].numpy() == approx(expected)

    personal = simulation.state.personal
    for user, mine in samples.items():
        items = sorted({item for item, _ in mine})
        assert personal.rows["items"][user].values.numpy() == approx([table[user, i] for i in items])
        slope_of = {
            i: sum(
                sigmoid(sum(a * q for a, q in zip(p[user], table[user, i], strict=True))) - y
                for item, y in mine
                if item == i
            )
            / len(mine)
            for i in items
        }
        slope = [sum(slope_of[i] * table[user, i][axis] for i in items) for axis in (0, 1)]
        user_vector = [adam_once(p[user][axis], slope[axis], 0.1) for axis in (0, 1)]
        assert personal.whole["user"][user].numpy() == approx(user_vector)
        along = sum(a * c for a, c in zip(p[user], b, strict=True))
        buffer = [[adam_once(0.0, slope_of[i] * along, 0.2)] for i in items]
        assert personal.tables["buffer.a"][user][items].numpy() == approx(buffer)
        assert personal.whole["buffer.b"][user].numpy() == approx([b])


def dot(one: list[float], two: list[float]) -> float:
    return sum(a * b for a, b in zip(one, two, strict=True))


SAMPLES = {0: [(0, 1), (3, 0)], 1: [(3, 1), (0, 0)], 2: [(1, 1), (2, 1), (3, 0), (3, 0)]}


def slopes(user: int, vector: list[float], table: list[list[float]]) -> dict[int, float]:
    """(σ(⟨p, q_i⟩) − y) / n, added up over the user's samples of each item."""
    mine = SAMPLES[user]
    return {
        item: sum(sigmoid(dot(vector, table[item])) - y for i, y in mine if i == item) / len(mine)
        for item in {i for i, _ in mine}
    }


@both_engines
def test_fedem(train: LocalTraining) -> None:
    """One epoch of each stage, an adapter without hidden layers, from p = (1, 0), (1, 0), (0, 1).

    Everybody has Q_u = ITEMS and has got G_u = ITEMS + (2, 0): the difference is Δ = (2, 0) for every item.
    The adapter starts at zero: ρ = σ(0) = 1/2, and the merged table it is trained on is ITEMS + (1, 0).

    Adapter. With g_i the slope of item i's score on the merged table, and σ'(0) = 1/4,

        ∂ρ_i = g_i ⟨p, Δ⟩ = 2 g_i (users 0 and 1), 0 (user 2)
        ∂bias = Σ ∂ρ_i / 4,    ∂weight = Σ ∂ρ_i / 4 · [Δ ; q_i]

    and Adam's first step at rate 0.2 goes against the signs. User 2's adapter stays at zero.

    Merging: q_i ← q_i + ρ_i Δ with ρ_i = σ(weight · [Δ ; q_i] + bias), for all four items, touched or not;
    for user 2 that is ITEMS + (1, 0).

    Training: Adam's first step at rate 0.1 on p with gradient Σ g_i q_i and on q_i with g_i p, from the
    merged table.

    Server, α = 1: the weights before projection are (p_v + s_uv) / 2 with p = (1, 1, 2)/4 and s_uu = 1. For
    user 0 that is (5/8, (1/4 + s)/2, (1/2 + s')/2): its sum exceeds 1 as soon as s + s' > 0, and the
    projection takes the excess off all three alike.
    """
    options = {"learning_rate": 0.1, "adapter_learning_rate": 0.2, "adapter": (), "similarity": 1.0}
    method = build("fedem", OPTIONS | options)
    p = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    simulation = Simulation(method, DATA, train, seed=0, device=torch.device("cpu"), dtype=torch.float64)
    items = torch.tensor(ITEMS, dtype=torch.float64)
    start = {
        "user": torch.tensor(p, dtype=torch.float64),
        "items.local": items.expand(3, 4, 2),
        "adapter.1.weight": torch.zeros(3, 1, 4, dtype=torch.float64),
        "adapter.1.bias": torch.zeros(3, 1, dtype=torch.float64),
    }
    downloaded = (items + torch.tensor([2.0, 0.0])).expand(3, 4, 2)
    simulation.restore({"items": downloaded}, start)
    simulation.run_round(0)

    delta, local, users = [2.0, 0.0], [], []
    for user in range(3):
        half_way = [[q[0] + 1, q[1]] for q in ITEMS]
        by_weight = {i: g * dot(p[user], delta) / 4 for i, g in slopes(user, p[user], half_way).items()}
        bias = adam_once(0, sum(by_weight.values()), 0.2)
        weight = [
            adam_once(0, sum(by * (delta + ITEMS[i])[k] for i, by in by_weight.items()), 0.2)
            for k in range(4)
        ]
        shares = [sigmoid(dot(weight, delta + q) + bias) for q in ITEMS]
        merged = [[q[0] + 2 * share, q[1]] for q, share in zip(ITEMS, shares, strict=True)]
        g = slopes(user, p[user], merged)
        users.append([adam_once(p[user][k], sum(g[i] * merged[i][k] for i in g), 0.1) for k in range(2)])
        local.append(
            [
                [adam_once(q[k], g.get(i, 0.0) * p[user][k], 0.1) for k in range(2)]
                for i, q in enumerate(merged)
            ]
        )
    assert shares == approx([0.5] * 4)  # user 2's
    personal = simulation.state.personal
    assert personal.whole["user"].numpy() == approx(users)
    assert personal.tables["items.local"].numpy() == approx(local)

    def alike(one: list[list[float]], two: list[list[float]]) -> float:
        return 1 / (
            1 + sum((a - b) ** 2 for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True))
        )

    expected = []
    for user in range(3):
        wish = [(n / 4 + alike(local[user], local[v])) / 2 for v, n in enumerate((1, 1, 2))]
        weights = [w - (sum(wish) - 1) / 3 for w in wish]
        assert min(weights) > 0
        expected.append(
            [[sum(weights[v] * local[v][i][k] for v in range(3)) for k in range(2)] for i in range(4)]
        )
    assert simulation.state.shared["items"].numpy() == approx(expected)
    own = [[dot(users[u], local[u][i]) for i in range(4)] for u in range(3)]
    assert simulation.scores(np.arange(3)).numpy() == approx(own)  # served with the client's own table


@both_engines
def test_plgc(train: LocalTraining) -> None:
    """One step of SGD: rates 1 for the user and 2 for the table, β = 1/2, γ = 1/4.

        G   = (7, 0) (7, 0) (0, 7) (0, 7)       tr G Gᵀ = 4 · 49 = 196
        C_u = (4, 5) (0, 1) (1, 0) (3, 12)      tr C Cᵀ = 41 + 1 + 1 + 153 = 196,   so λ = 1/2

    User 0, p = (1, 0), has items 0 (positive) and 3 (negative). Mixed: q_0 = (5.5, 2.5), q_3 = (1.5, 9.5),
    g_0 = (σ(5.5) − 1)/2, g_3 = σ(1.5)/2. Its loss moves p by g_0 q_0 + g_3 q_3, and c_i by λ g_i p.

    Redundancy reduction. Projector and predictor are the identity (all rows are positive), and both samples
    weigh alike. The columns of G's rows 0 and 3 are (7, 0) and (0, 7), so H_ij is column i of C's rows 0 and
    3 at unit length, entry j:

        column 1: (4, 3)/5,    H_11 = cos a = 4/5,     H_12 = sin a = 3/5
        column 2: (5, 12)/13,  H_22 = cos b = 12/13,   H_21 = sin b = 5/13

    eRR = ½ [(1 − cos a)² + (1 − cos b)²] + γ/2 [sin² a + sin² b] falls apart into the two angles, with the
    derivatives (1 − cos) sin + γ sin cos. a is the angle of (c_01, c_31) from its first axis, so

        ∂a/∂c_01 = −sin a / 5,     ∂a/∂c_31 = cos a / 5

    and b that of (c_02, c_32) from its second axis: ∂b/∂c_02 = cos b / 13, ∂b/∂c_32 = −sin b / 13.
    """
    options = {"learning_rate": 1, "item_learning_rate": 2, "redundancy": 0.5, "decorrelation": 0.25}
    method = build("plgc", OPTIONS | options)
    shared = [[7.0, 0.0], [7.0, 0.0], [0.0, 7.0], [0.0, 7.0]]
    table = [[4.0, 5.0], [0.0, 1.0], [1.0, 0.0], [3.0, 12.0]]
    identity = [[[1.0, 0.0], [0.0, 1.0]]] * 3
    simulation = Simulation(method, DATA, train, seed=0, device=torch.device("cpu"), dtype=torch.float64)
    start = {
        "user": [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]],
        "items.local": [table] * 3,
        "items.local.trace": [[196.0]] * 3,
        "projector.weight": identity,
        "projector.bias": [[0.0, 0.0]] * 3,
        "predictor.weight": identity,
    }
    simulation.restore(
        {"items": torch.tensor(shared, dtype=torch.float64), "items.trace": torch.tensor([196.0]).double()},
        {name: torch.tensor(value, dtype=torch.float64) for name, value in start.items()},
    )
    simulation.run_round(0)

    g0, g3 = (sigmoid(5.5) - 1) / 2, sigmoid(1.5) / 2
    personal = simulation.state.personal
    assert personal.whole["user"][0].numpy() == approx([1 - 5.5 * g0 - 1.5 * g3, -2.5 * g0 - 9.5 * g3])
    by_a = (1 - 4 / 5) * 3 / 5 + 3 / 5 * 4 / 5 / 4
    by_b = (1 - 12 / 13) * 5 / 13 + 5 / 13 * 12 / 13 / 4
    gradient_0 = [g0 / 2 - by_a * 3 / 25 / 2, by_b * 12 / 169 / 2]
    gradient_3 = [g3 / 2 + by_a * 4 / 25 / 2, -by_b * 5 / 169 / 2]
    local = personal.tables["items.local"].numpy()
    moved_0 = [4 - 2 * gradient_0[0], 5 - 2 * gradient_0[1]]
    moved_3 = [3 - 2 * gradient_3[0], 12 - 2 * gradient_3[1]]
    assert local[0] == approx([moved_0, [0, 1], [1, 0], moved_3])
    traces = (local**2).sum((1, 2))
    assert personal.whole["items.local.trace"].numpy()[:, 0] == approx(traces)
    changes = ((local - np.array(table)) * np.array([1, 1, 2])[:, None, None] / 4).sum(0)
    aggregate = simulation.state.shared["items"].numpy()
    assert aggregate == approx(np.array(shared) + changes)
    assert simulation.state.shared["items.trace"].numpy() == approx([(aggregate**2).sum()])
    share = traces[0] / (traces[0] + (aggregate**2).sum())
    mixed = share * local[0] + (1 - share) * aggregate
    assert simulation.scores(np.array([0]))[0].numpy() == approx(mixed @ personal.whole["user"][0].numpy())
