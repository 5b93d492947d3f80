"""PerFedRec's graph convolution on the graph of one device."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from solera.engine.block import BlockTraining
from solera.methods import build
from solera.methods.perfedrec import ConvolvedDot
from solera.testing.toy import N_CLIENTS, run, toy_data


def test_gathered_by_hand():
    """Two clients, with items (1, 0), (3, 4) and with one item (5, 5)."""
    rows = torch.tensor([[1.0, 0.0], [3.0, 4.0], [5.0, 5.0]])
    found = ConvolvedDot(2).gather(rows, torch.tensor([2, 1]))
    assert found[0].tolist() == pytest.approx([4 / math.sqrt(2), 4 / math.sqrt(2)])
    assert found[1].tolist() == [5, 5]


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_layers_are_those_of_the_normalised_adjacency_matrix(layers):
    """LightGCN on a star with four items: the mean of E, A E, A² E, …, at the user."""
    draw = torch.Generator().manual_seed(0)
    user, items = torch.randn(3, generator=draw), torch.randn(4, 3, generator=draw)
    adjacency = torch.zeros(5, 5)
    adjacency[0, 1:] = adjacency[1:, 0] = 1 / math.sqrt(4 * 1)
    embeddings = [torch.cat([user[None], items])]
    for _ in range(layers):
        embeddings.append(adjacency @ embeddings[-1])
    convolved = torch.stack(embeddings).mean(0)[0]
    scorer = ConvolvedDot(3, layers=layers)
    params = {"user": user, "neighbours": scorer.gather(items, torch.tensor([4]))[0]}
    others = torch.randn(6, 3, generator=draw)
    torch.testing.assert_close(scorer.score(params, others), others @ convolved)


def test_gradients_are_those_of_autograd():
    draw = torch.Generator().manual_seed(0)
    params = {name: torch.randn(3, generator=draw) for name in ("user", "neighbours")}
    items, slope = torch.randn(5, 3, generator=draw), torch.randn(5, generator=draw)
    scorer = ConvolvedDot(3, layers=2)
    user, table = params["user"].clone().requires_grad_(), items.clone().requires_grad_()
    by_user, by_items = torch.autograd.grad(
        (scorer.score(params | {"user": user}, table) * slope).sum(), (user, table)
    )
    torch.testing.assert_close(scorer.gradient(params, items, slope, ["user"])["user"], by_user)
    torch.testing.assert_close(scorer.item_gradient(params, slope), by_items)


def test_a_client_gathers_what_it_has_downloaded():
    method = build("perfedrec", {"embedding_size": 4, "local_epochs": 1})
    simulation = run(method, BlockTraining(1, 300), rounds=1)
    downloaded = simulation.state.shared["items"].clone()
    simulation.run_round(1)
    for client in range(N_CLIENTS):
        own = toy_data().train.row(client)
        expected = downloaded[client][own.astype(np.int64)].sum(0) / math.sqrt(len(own))
        torch.testing.assert_close(simulation.state.personal.whole["neighbours"][client], expected)


def test_nothing_more_is_sent():
    assert [leaf.name for leaf in build("perfedrec").leaves if leaf.sent_as] == ["items"]
    assert "neighbours" not in {leaf.name for leaf in build("perfedrec", {"layers": 0}).leaves}
