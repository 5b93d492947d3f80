"""FedHist: its battery, a round by hand, an independent loop, and what is served to whom."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
import torch

from solera.core.errors import ConfigError
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData, sample
from solera.engine.block import BlockTraining
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import Simulation
from solera.methods import build
from solera.methods.fedhist import FadingHistory, sampled_softmax
from solera.testing import MethodConformance
from solera.testing.toy import CPU, Watched

both_engines = pytest.mark.parametrize(
    "train", [train_one_by_one, BlockTraining(1)], ids=["reference", "block"]
)
DATA = ClientData(
    Ragged.from_lists([[0], [1, 2]]), Ragged.from_lists([[0, 1, 2], [0, 1, 2]]), n_items=4
)  # item 3 is everybody's only negative


class TestFedHist(MethodConformance):
    whole = True
    name = "fedhist"
    options: ClassVar = {"clients_per_round": 1.0}


class TestFedHistOneDecay(TestFedHist):
    whole = False
    options: ClassVar = {"clients_per_round": 1.0, "decays": (0.8,), "batch_size": 7, "reg": 0.01}


def simulation(train, shared, data=DATA, plugins=(), **options):
    method = build("fedhist", {"negatives": 1, "clients_per_round": 1.0} | options, plugins)
    made = Simulation(method, data, train, seed=0, device=CPU, dtype=torch.float64)
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in shared.items()}
    made.restore(made.state.shared | values, made.state.personal.tensors())
    return made


@both_engines
def test_one_round_by_hand(train):
    """One dimension, a = 1/4, one step of rate 1. Vectors are [bias, q]; inputs e = (0, 2, 1, 0).

        items: 0: [0, 0], 1: [0, 0], 2: [0, 1], 3: [ln 2, 0]

    User 0 has item 0, found by m = [1, 0]: scores 0 against ln 2 of item 3, once drawn. Its share is 1/3, so
    the slope is −2/3 for item 0 and 2/3 for item 3.
            Δq_0 = [2/3, 0],   Δq_3 = [−2/3, 0],   inputs: item 0 is nowhere an input of a target: 0

    User 1 has items 1 and 2, and draws item 3 twice.
        place 0, m = [1, 0]: item 1 scores 0, item 3 ln 2, twice: e^0 / (e^0 + 2 · 2) = 1/5
            slopes: item 1: −4/5, item 3: 4/5
        place 1, m = [1, 2] (of one item: the root is that of 1): item 2 scores 2, item 3 ln 2, twice:
            s = e² / (e² + 4);  slopes: item 2: s − 1, item 3: 1 − s
            Δq_2 = (1 − s) [1, 2],   Δq_3 = −4/5 [1, 0] − (1 − s) [1, 2],   Δq_1 = [4/5, 0]
            by m: (s − 1) · 1 + (1 − s) · 0, so Δe_1 = 1 − s

    All of user 1's divided by √2, as it has two places. The server takes item 3 as the mean of two clients'
    changes, every other row as its one client's.
    """
    start = {"items": [[0, 0], [0, 0], [0, 1], [math.log(2), 0]], "inputs": [[0], [2], [1], [0]]}
    options = {"embedding_size": 1, "decays": (0.25,), "learning_rate": 1.0, "local_epochs": 1}
    made = simulation(train, start, **options)
    report = made.run_round(0)
    s = math.exp(2) / (math.exp(2) + 4)
    r = math.sqrt(1 / 2)
    third = [math.log(2) - (2 / 3 + r * (4 / 5 + 1 - s)) / 2, -r * (1 - s)]
    expected = [[2 / 3, 0], [r * 4 / 5, 0], [r * (1 - s), 1 + r * 2 * (1 - s)], third]
    assert made.state.shared["items"].numpy() == pytest.approx(np.array(expected), abs=1e-12)
    assert made.state.shared["inputs"].numpy() == pytest.approx(
        np.array([[0], [2 + r * (1 - s)], [1], [0]]), abs=1e-12
    )
    assert report.loss == pytest.approx((math.log(3) + (math.log(5) - math.log(s)) / 2) / 2, rel=1e-12)
    # Rows sent: 0 and 3 of user 0; 1, 2 and 3 of user 1; each a number, two of the items, one of inputs.
    assert report.bytes_up == (2 + 3) * 16 / 2


def memory(inputs, sequence, decays):
    """Written out: oldest first, one decay after the other."""
    size = inputs.shape[1]
    found = [torch.ones((), dtype=inputs.dtype)]
    for k in range(size):
        a = decays[k * len(decays) // size]
        weights = [a ** (len(sequence) - 1 - place) for place in range(len(sequence))]
        total = sum((w * inputs[i, k] for w, i in zip(weights, sequence, strict=True)), inputs.new_zeros(()))
        found.append(total / math.sqrt(sum(weights)) if sequence else total)
    return torch.stack(found)


@both_engines
@pytest.mark.parametrize("batch_size", [3, 100])
def test_against_a_loop_over_clients_places_and_negatives(train, batch_size):
    draw = np.random.default_rng(3)
    sequences = [draw.choice(12, n, replace=False).tolist() for n in (1, 2, 5, 7, 8)] + [[4, 4, 9, 4]]
    known = Ragged.from_lists(sequences)
    data = ClientData(known, known.sorted_unique(), 12)
    start = {"items": draw.normal(size=(12, 5)), "inputs": draw.normal(size=(12, 4))}
    decays, rate = (0.0, 0.5, 0.9), 0.05
    options = {"embedding_size": 4, "decays": decays, "batch_size": batch_size, "negatives": 2}
    made = simulation(train, start, data, **options, learning_rate=rate, local_epochs=2, reg=0.1)
    made.run_round(0)

    changes = {name: torch.zeros(torch.tensor(value).shape).double() for name, value in start.items()}
    touched = torch.zeros(12, 1)
    for client, sequence in enumerate(sequences):
        drawn = sample(data, np.array([client]), 2, 0, 0).items.values[len(sequence) :]
        table = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in start.items()}
        rows = sorted({*sequence, *drawn.tolist()})
        touched[rows] += 1
        for _ in range(2):
            for first in range(0, len(sequence), batch_size):
                loss = torch.zeros((), dtype=torch.float64)
                for t in range(first, min(first + batch_size, len(sequence))):
                    m = memory(table["inputs"], sequence[:t], decays)
                    scores = [m @ table["items"][i] for i in (sequence[t], *drawn)]
                    loss = loss + torch.stack(scores).logsumexp(0) - scores[0]
                loss = loss / math.sqrt(min(batch_size, len(sequence) - first))
                slopes = torch.autograd.grad(loss, list(table.values()), allow_unused=True)
                with torch.no_grad():
                    for values, slope in zip(table.values(), slopes, strict=True):
                        by_loss = 0 if slope is None else slope[rows]
                        values[rows] -= rate * (by_loss + 0.1 * values[rows])
        for name in changes:
            changes[name] += (table[name] - torch.tensor(start[name])).detach()
    for name, change in changes.items():
        expected = torch.tensor(start[name]) + change / touched.clamp(min=1)
        torch.testing.assert_close(made.state.shared[name], expected, rtol=1e-10, atol=1e-10)


def test_what_is_served_follows_from_the_history_that_is_known():
    draw = np.random.default_rng(4)
    start = {"items": draw.normal(size=(4, 4)), "inputs": draw.normal(size=(4, 3))}
    made = simulation(BlockTraining(1), start, embedding_size=3, decays=(0.3, 0.9))
    histories = [[], [2, 0, 2]]
    got = made.serve(Ragged.from_lists(histories))(np.array([1, 0]))
    tables = {name: torch.tensor(value) for name, value in start.items()}
    for row, sequence in zip(got, histories[::-1], strict=True):
        expected = tables["items"] @ memory(tables["inputs"], sequence, (0.3, 0.9))
        torch.testing.assert_close(row, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(got[1], tables["items"][:, 0])  # who knows nothing yet is served by the biases


def test_the_order_of_the_history_stays_on_the_client():
    """What is sent names rows in ascending order, and the changes of both tables, and nothing else."""
    watched = Watched(BlockTraining(1))
    made = simulation(watched, {}, embedding_size=3)
    made.run_round(0)
    for result in watched.results:
        assert set(result.upload.changes) == {"items", "inputs"}
        for rows in torch.split(result.upload.rows, result.upload.row_counts.tolist()):
            assert (rows.diff() > 0).all()


def test_it_learns_what_follows_what():
    """Everybody walks the same circle of ten items from a random start: the next one is certain."""
    draw = np.random.default_rng(0)
    train = Ragged.from_lists([[(s + k) % 10 for k in range(6)] for s in draw.integers(0, 10, 60).tolist()])
    data = ClientData(train, train.sorted_unique(), 10)
    made = simulation(
        BlockTraining(1), {}, data, embedding_size=16, decays=(0.0,), learning_rate=1.0, negatives=2
    )
    for round_ in range(60):
        made.run_round(round_)
    scores = made.scores(np.arange(60))
    scores.scatter_(1, torch.from_numpy(train.values.reshape(60, 6)), -torch.inf)
    assert (scores.argmax(1).numpy() == (train.values.reshape(60, 6)[:, -1] + 1) % 10).all()


def test_the_softmax_of_scores_far_apart_is_finite():
    scores = torch.tensor([[[0.0, 1e4, -1e4]]])
    loss, slope = sampled_softmax(scores, torch.tensor([[0]]), torch.tensor([[0.0, 0.0, 3.0]]))
    assert loss.tolist() == [[0.0]]
    assert slope.tolist() == [[[0.0, 0.0, 0.0]]]


def test_dimensions_are_shared_out_among_the_decays():
    assert FadingHistory((0.1, 0.2, 0.3)).of_dimensions(7).tolist() == [0, 0, 0, 1, 1, 2, 2]
    with pytest.raises(ConfigError, match="decays"):
        build("fedhist", {"decays": "0.5,1.5"})
