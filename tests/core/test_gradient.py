"""`Method.gradient` is the gradient of loss and penalty, with and without parts that know theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from solera.core.context import Batch
from solera.core.method import Method
from solera.methods import build
from solera.methods.fedncf import SharedPerceptron
from solera.methods.fedrap import ScorerAndTables

CLIENTS, SAMPLES = 3, 5


def fedrap() -> Method:
    return build("fedrap", {"embedding_size": 4, "independence": 0.3, "sparsity": 0.2, "curriculum": "fixed"})


def perceptron_on_two_tables() -> Method:
    """A scorer that leaves its gradient to autograd, on a view with a penalty."""

    class Update(ScorerAndTables):
        def stages(self, context):
            (stage,) = super().stages(context)
            scorer, (tables,) = stage.moves[0], stage.moves[0].along
            leaves = tuple(leaf.name for leaf in perceptron.leaves)
            return (replace(stage, moves=(replace(scorer, leaves=leaves, along=(tables,)),)),)

    perceptron = SharedPerceptron(4, (6, 5))
    return replace(fedrap(), scorer=perceptron, update=Update(("items", "own")))


@pytest.mark.parametrize("make", [fedrap, perceptron_on_two_tables])
def test_gradient_is_that_of_loss_and_penalty(make):
    method, draw = make(), torch.Generator().manual_seed(1)
    params = {
        leaf.name: torch.randn(
            CLIENTS, *([SAMPLES] if leaf.per_item else []), *leaf.shape, generator=draw, dtype=torch.float64
        ).requires_grad_()
        for leaf in method.leaves
    }
    weights = torch.rand(CLIENTS, SAMPLES, generator=draw, dtype=torch.float64)
    batch = Batch(weights, weights * (torch.rand(CLIENTS, SAMPLES, generator=draw) < 0.5))
    context = method.context(0, n_items=9)
    goal = method.batch_loss(params, batch) + method.penalty(params, batch, context)
    expected = dict(zip(params, torch.autograd.grad(goal.sum(), list(params.values())), strict=True))
    with torch.no_grad():
        still = {name: value.detach() for name, value in params.items()}
    _, found = method.gradient(still, batch, context, tuple(still))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-12)
