"""What the server mixes a client's table of, on tables whose likeness is plain to see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from solera.core.context import Batch
from solera.core.method import Method
from solera.methods import build
from solera.methods.gpfedrec import UserGraph
from solera.methods.pfedgraph import RECEIVED, SinceStart

N_ITEMS = 50


def mixing(method: Method, tables: Tensor, sizes: list[int]) -> Tensor:
    assert method.aggregate.target
    weights = torch.tensor(sizes, dtype=torch.float64)
    return method.aggregate.mixing(tables, weights, method.context(0, N_ITEMS))


def one_row(*rows: list[float]) -> Tensor:
    """Tables of a single item."""
    return torch.tensor(rows, dtype=torch.float64).unsqueeze(1)


def approx(expected: list[list[float]]) -> object:
    return pytest.approx(np.array(expected), rel=1e-12, abs=1e-12)


# Clients 0 and 2 are of one mind, and so are 1, 3 and 4.
TWO_CLUSTERS = one_row([1, 0.1], [-1, 0], [1, -0.1], [-1, 0.1], [-1, -0.1])


def test_fedfast():
    a, b = 1 / 2, 1 / 3
    assert mixing(build("fedfast", {"clusters": 2}), TWO_CLUSTERS, [1, 2, 3, 4, 5]).numpy() == approx(
        [[a, 0, a, 0, 0], [0, b, 0, b, b], [a, 0, a, 0, 0], [0, b, 0, b, b], [0, b, 0, b, b]]
    )


def test_perfedrec():
    """Shares 1 : 2 : 5 of eight: own 1/8, cluster 1/4 over its size, everybody 5/8 over five clients.

    Clients 0 and 2: themselves 1/8 + 1/8 + 1/8, each other 1/8 + 1/8, others 1/8. The other three: themselves
    1/8 + 1/12 + 1/8 = 1/3, one another 1/12 + 1/8 = 5/24, others 1/8.
    """
    method = build("perfedrec", {"clusters": 2, "own": 1, "cluster": 2, "everybody": 5})
    e, c, s = 1 / 8, 5 / 24, 1 / 3
    assert mixing(method, TWO_CLUSTERS, [1, 2, 3, 4, 5]).numpy() == approx(
        [
            [3 / 8, e, 1 / 4, e, e],
            [e, s, e, c, c],
            [1 / 4, e, 3 / 8, e, e],
            [e, c, e, s, c],
            [e, c, e, c, s],
        ]
    )


# Clients 0 and 1 learned the same, one of them twice as much, client 2 something else.
THREE_CHANGES = one_row([1, 0], [2, 0], [0, 1])


@pytest.mark.parametrize(
    ("evenness", "expected"),
    [
        # p = (1/4, 1/4, 1/2). 2α = 1: p + s = (5/4, 5/4, 1/2) for clients 0 and 1, from which 3/4 is taken;
        # (1/4, 1/4, 3/2) for client 2, from which 1/2 is taken.
        (0.5, [[1 / 2, 1 / 2, 0], [1 / 2, 1 / 2, 0], [0, 0, 1]]),
        # 2α = 4: (1/2, 1/2, 1/2), less 1/6; (1/4, 1/4, 3/4), less 1/12.
        (2.0, [[1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3], [1 / 6, 1 / 6, 2 / 3]]),
    ],
)
def test_pfedgraph(evenness, expected):
    method = build("pfedgraph", {"evenness": evenness})
    assert mixing(method, THREE_CHANGES, [1, 1, 2]).numpy() == approx(expected)


def test_pfedgraph_weights_are_the_best_there_are():
    """α Σ (w − p)² − Σ w s is no lower at any other point of the simplex that is tried."""
    draw = np.random.default_rng(0)
    tables, sizes = torch.from_numpy(draw.standard_normal((4, 3, 2))), [3, 1, 4, 1]
    found = mixing(build("pfedgraph", {"evenness": 0.3}), tables, sizes)
    p, flat = torch.tensor(sizes) / 9, torch.nn.functional.normalize(tables.flatten(1), dim=1)

    def value(w: Tensor) -> Tensor:
        return 0.3 * (w - p).square().sum(-1) - (w * (flat @ flat.T)).sum(-1)

    others = torch.from_numpy(draw.dirichlet(np.ones(4), (2000, 4)))
    assert (value(others) >= value(found)).all()
    assert torch.allclose(found.sum(1), torch.ones(4, dtype=torch.float64))


def test_pfedgraph_refreshes_some_clients():
    """Two of four, mixed among themselves: as if there were nobody else. The others keep their tables."""
    draw = np.random.default_rng(0)
    tables, sizes = torch.from_numpy(draw.standard_normal((4, 3, 2))), [3, 1, 4, 1]
    found = mixing(build("pfedgraph", {"refreshed": 0.5}), tables, sizes)
    some = [client for client in range(4) if found[client, client] < 1]
    others = [client for client in range(4) if client not in some]
    assert len(some) == 2
    assert torch.equal(found[others], torch.eye(4, dtype=found.dtype)[others])
    alone = mixing(build("pfedgraph"), tables[some], [sizes[client] for client in some])
    assert torch.equal(found[some][:, some], alone)
    assert not found[some][:, others].any()


def test_pfedgraph_cosine_by_hand():
    """Q = ((1, 0), (0, 1)) and R = ((1, 0), (1, 0)), the second row of weight 3/4.

    ⟨Q, R⟩ = 1/4, ‖Q‖² = ‖R‖² = 1: the cosine is 1/4. Its gradient by a row is w (r − q / 4): (3/16, 0) and
    (3/4, −3/16).
    """
    view = build("pfedgraph", {"embedding_size": 2, "attraction": 2.0}).view
    rows = {
        "items": torch.tensor([[1.0, 0.0], [0.0, 0.0]]),
        "change": torch.tensor([[0.0, 0.0], [0.0, 1.0]]),
        RECEIVED: torch.tensor([[0.0, 0.0], [1.0, 0.0]]),
    }
    batch = Batch(torch.tensor([0.25, 0.75]), torch.zeros(2))
    context = build("pfedgraph").context(0, 2)
    assert isinstance(view, SinceStart)
    assert float(view.penalty(rows, batch, context)) == pytest.approx(-0.5)
    found = view.gradient(rows, torch.ones(2, 2), batch, context)["change"]
    assert found.numpy() == approx([[1 - 3 / 8, 1], [1 - 3 / 2, 1 + 3 / 8]])


# Cosines: 0.995 of clients 0 and 1, 0 of 0 and 2, 0.0995 of 1 and 2; with three ones, 0.577 on average.
# Distances: 0.005, 1 and 0.9005; with three zeros, 0.423 on average.
THREE_USERS = one_row([1, 0], [1, 0.1], [0, 1])
SIMILAR: list[list[float]] = [[1 / 2, 1 / 2, 0], [1 / 2, 1 / 2, 0], [0, 0, 1]]
DISSIMILAR = [[0, 0, 1], [0, 0, 1], [1 / 2, 1 / 2, 0]]


@pytest.mark.parametrize(("neighbours", "expected"), [("similar", SIMILAR), ("code", DISSIMILAR)])
def test_gpfedrec_neighbours(neighbours, expected):
    assert UserGraph(neighbours).graph(THREE_USERS, 1.0).numpy() == approx(expected)


@pytest.mark.parametrize("neighbours", ["similar", "code"])
def test_gpfedrec_users_without_neighbours_keep_their_tables(neighbours):
    assert torch.equal(UserGraph(neighbours).graph(THREE_USERS, 3.0), torch.eye(3, dtype=torch.float64))


def test_gpfedrec_mixing():
    """A step takes 2 λ η · item_rate / d = 2 · 1 · 0.1 · 1.25 / 2 = 1/8 of the way to the neighbours.

    Batches of 10 samples, four negatives per positive: 2, 3 and 6 positives make one, two and three batches,
    so z = 1/8, 15/64 and 169/512. The mean table G is 1/3 of each: with the clients 0 and 1 as neighbours,
    mean (1/2, 1/2, 0), the same, and (0, 0, 1) is (1/3, 1/3, 1/3).
    """
    options = {"embedding_size": 2, "item_rate": 1.25, "batch_size": 10, "guidance": 1.0}
    z = [1 / 8, 15 / 64, 169 / 512]
    assert mixing(build("gpfedrec", options), THREE_USERS, [2, 3, 6]).numpy() == approx(
        [[(1 - z[u]) / 3 + z[u] * SIMILAR[u][v] for v in range(3)] for u in range(3)]
    )


def test_gpfedrec_is_drawn_as_far_as_steps_on_the_penalty_would_take_it():
    """T steps of rate η' = η · n_items · item_rate on λ · mean (Q − R)² over the whole table, from G to R."""
    method = build("gpfedrec", {"embedding_size": 8, "guidance": 0.3, "batch_size": 64})
    context = method.context(0, N_ITEMS)
    draw = np.random.default_rng(0)
    start, guide = (torch.from_numpy(draw.standard_normal((N_ITEMS, 8))) for _ in range(2))
    sizes = torch.tensor([5.0, 20.0, 63.0], dtype=torch.float64)
    drawn = UserGraph().drawn(sizes, 8, context)
    for z, batches in zip(drawn.tolist(), [1, 2, 5], strict=True):
        table = start.clone().requires_grad_()
        for _ in range(batches):
            (gradient,) = torch.autograd.grad(0.3 * (table - guide).square().mean(), table)
            table = (table - 0.1 * N_ITEMS * 80 * gradient).detach().requires_grad_()
        torch.testing.assert_close(table.detach(), start + z * (guide - start), rtol=1e-10, atol=1e-10)
