"""FedSASRec: its battery, equality with centralized training, and sums against single uploads."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from solera.coding import download_coding, upload_coding
from solera.core.errors import ConfigError
from solera.core.protection import Chain
from solera.core.upload import Totals
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.block import BlockTraining
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import Simulation
from solera.engine.windows import begins, window_batches, windows_of
from solera.math.transformer import Transformer, states
from solera.methods import build
from solera.methods.fedsasrec import CatalogueSoftmax
from solera.testing import MethodConformance
from solera.testing.toy import CPU, Ordered, difference, relative_differences, run, same, state, toy_data

SMALL: dict[str, Any] = {"embedding_size": 4, "clients_per_round": 1.0, "layers": 1, "max_length": 100}


class TestFedSASRec(MethodConformance):
    name = "fedsasrec"
    options: ClassVar = {
        "clients_per_round": 1.0,
        "layers": 1,
        "max_length": 10,
        "local_epochs": 1,
        "negatives": 20,
        "warmup": 2,
    }

    def test_block_is_reference_in_float32(self) -> None:
        """Biases of keys do not change a softmax. Their gradient is rounding, of which Adam makes steps."""
        expected, *found = (
            state(run(self.method(), train, dtype=torch.float32))
            for train in (train_one_by_one, BlockTraining(1, 300), BlockTraining(1, 10**9))
        )
        for each in (expected, *found):
            each["shared block0_attention_in_bias"] = torch.ones(1)
        for got in found:
            assert float(relative_differences(got, expected).max()) <= 2e-4

    def test_sums_are_those_of_single_uploads(self) -> None:
        """Batches of several clients, and clients one after the other."""
        single = state(run(self.method(), Ordered(BlockTraining(1), same)))
        for places in (1, 300, 10**9):
            assert difference(state(run(self.method(), BlockTraining(2, places))), single) <= 1e-10

    def test_bytes_are_those_of_single_uploads(self) -> None:
        train = BlockTraining(1, 300)
        summed, single = (run(self.method(), each, 0).run_round(0) for each in (train, Ordered(train, same)))
        assert summed.bytes_up == single.bytes_up
        assert summed.loss == pytest.approx(single.loss, rel=1e-12)


class TestFedSASRecOfAllItems(TestFedSASRec):
    brief = True
    options: ClassVar = TestFedSASRec.options | {
        "negatives": 1000,
        "batch_size": 10**5,
        "dropout": 0.0,
        "block": "ligr",
    }


@pytest.mark.parametrize(
    ("block", "max_length"), [("sasrec", 100), ("sasrec", 6), ("ligr", 100), ("hstu", 100)]
)
def test_rounds_are_the_steps_of_centralized_training(block, max_length):
    """The same mini-batches of windows, mean cross-entropy over all places, torch's AdamW: equal to 1e-6.

    Most histories are longer than a window of 6 + 1 items.
    """
    options = SMALL | {"block": block, "dropout": 0.0, "learning_rate": 0.01, "warmup": 5, "reg": 0.01}
    options["max_length"] = max_length
    method = build("fedsasrec", options | {"clients_per_round": 6})
    federation = Simulation(method, toy_data(), BlockTraining(1), seed=0, device=CPU, dtype=torch.float64)
    network = Transformer(block, 4, 1, 2, max_length)
    params = {name: value.clone().requires_grad_() for name, value in federation.state.shared.items()}
    adam = torch.optim.AdamW(params.values(), 0.01, (0.9, 0.98), weight_decay=0.01)
    for step in range(100):
        windows = windows_of(federation.task(step), federation.choose(step))
        items = windows.items.masked_fill(~windows.real, -1)
        scores = states(params, network, items[:, :-1].clamp(min=0)) @ params["items"].T
        adam.zero_grad()
        loss = cross_entropy(scores.flatten(0, 1), items.flatten(), ignore_index=-1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        adam.param_groups[0]["lr"] = 0.01 * min(1, (step + 1) / 5)
        adam.step()
        federation.run_round(step)
    trained = {name: value.detach() for name, value in params.items()}
    assert difference(federation.state.shared, trained) <= 1e-6
    assert difference(federation.state.shared, method_start(method)) > 0.1


def method_start(method):
    return Simulation(
        method, toy_data(), BlockTraining(1), seed=0, device=CPU, dtype=torch.float64
    ).state.shared


def test_the_loss_by_hand():
    """Scores are 0 for items 0 and 1 and ln 2 for 2. The catalogue: target 2 has 2 / (1 + 1 + 2).

    Item 1 alone stands for all 3: 2 / (2 + 3). With the target drawn beside it, no negative, it counts
    3/2 times: 2 / (2 + 3/2).
    """
    states_, items = torch.ones(1, 1).double(), torch.tensor([[0.0], [0.0], [0.6931471805599453]]).double()
    target, weight = torch.tensor([2]), torch.tensor([3.0]).double()
    loss = CatalogueSoftmax(5)
    total, single = loss.losses(states_, items, target, weight, None)
    assert (float(total), float(single)) == pytest.approx((3 * np.log(2), np.log(2)))
    for drawn, share in (([1], 2 / 5), ([1, 2], 4 / 7)):
        total, _ = loss.losses(states_, items, target, weight, torch.tensor(drawn))
        assert float(total) == pytest.approx(-3 * np.log(share))


@pytest.mark.parametrize("negatives", [None, [0, 3, 4]])
def test_gradients_of_the_loss_are_right(negatives):
    draw = torch.Generator().manual_seed(0)
    states_, items = (torch.randn(n, 2, generator=draw, dtype=torch.float64) for n in (4, 6))
    targets, weights = torch.tensor([0, 5, 2, 3]), torch.rand(4, generator=draw, dtype=torch.float64)
    drawn = None if negatives is None else torch.tensor(negatives)

    def value(s, i):
        return CatalogueSoftmax(3).losses(s, i, targets, weights, drawn)[0]

    assert torch.autograd.gradcheck(value, (states_.requires_grad_(), items.requires_grad_()))


def test_negatives_are_drawn_once_a_round():
    context = build("fedsasrec").context(3, 50, seed=1)
    drawn, again, later = (
        CatalogueSoftmax(20).drawn(each)
        for each in (context, context, build("fedsasrec").context(4, 50, seed=1))
    )
    assert drawn is not None
    assert again is not None
    assert later is not None
    assert len(set(drawn.tolist())) == 20
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, later)
    assert CatalogueSoftmax(50).drawn(context) is None


def test_half_of_the_windows_are_the_latest():
    bits = np.random.default_rng(0).integers(2**64, size=4000, dtype=np.uint64)
    lengths = np.full(2000, 30)
    begin = begins(lengths, 9, bits)  # windows of 10 items begin at 0 … 20
    assert set(begin) == set(range(21))
    assert 0.48 < (begin == 20).mean() - 0.5 / 21 < 0.52
    assert not begins(np.full(2000, 10), 9, bits).any()


def test_batches_have_similar_lengths_and_all_clients():
    lengths = np.random.default_rng(0).integers(1, 200, 128)
    batches = window_batches(lengths, 4096, 100)
    assert sorted(np.concatenate(batches)) == list(range(128))
    for batch in batches:
        assert len(batch) * lengths[batch].max() <= 4096
        assert (
            lengths[batch].min() >= 0.75 * lengths[batch].max() or lengths[batch].max() * len(batch) <= 1100
        )


def test_dropout_is_the_clients_own():
    """A client's upload does not depend on who else is in the round, and differs from round to round."""
    method = build("fedsasrec", SMALL | {"dropout": 0.5})
    federation = Simulation(method, toy_data(), train_one_by_one, seed=0, device=CPU, dtype=torch.float64)
    task = federation.task(0)
    (alone,) = BlockTraining(1)(task, np.array([3]))
    (both,) = BlockTraining(1)(task, np.array([3, 8]))
    of_both = both.upload.of_client(both.clients.tolist().index(3), method.leaves)
    assert difference(of_both.changes, alone.upload.changes) <= 1e-14
    (later,) = BlockTraining(1)(federation.task(1), np.array([3]))
    assert difference(later.upload.changes, alone.upload.changes) > 1e-4


def test_masked_sums_differ_by_rounding_alone():
    method = build("fedsasrec", SMALL)
    plain, masked = (
        Simulation(method, toy_data(), BlockTraining(1), seed=0, device=CPU, protection=Chain(masked=on))
        for on in (False, True)
    )
    plain.run_round(0)
    masked.run_round(0)
    m = {name for name in plain.state.memory if name.startswith("server.m.")}
    for name in m:
        torch.testing.assert_close(plain.state.memory[name], masked.state.memory[name], rtol=1e-3, atol=1e-5)


def test_a_user_without_history_is_served():
    method = build("fedsasrec", SMALL)
    data = ClientData(Ragged.from_lists([[0, 1], []]), Ragged.from_lists([[0, 1], []]), 5)
    scores = Simulation(method, data, BlockTraining(1), seed=0, device=CPU).scores(np.array([0, 1]))
    assert scores.isfinite().all()
    assert not torch.equal(*scores)


def test_the_latest_items_are_read():
    method = build("fedsasrec", SMALL | {"max_length": 3})
    known = Ragged.from_lists([[9, 8, 7, 1, 2, 3], [1, 2, 3], [2, 3]])
    data = ClientData(known, known.sorted_unique(), 10)
    scores = Simulation(method, data, BlockTraining(1), seed=0, device=CPU).scores(np.arange(3))
    torch.testing.assert_close(scores[0], scores[1])
    assert not torch.allclose(scores[0], scores[2])


def test_no_clients_change_nothing():
    method = build("fedsasrec", SMALL)
    federation = run(method, BlockTraining(1), rounds=0)
    shared = federation.state.shared | federation.state.memory
    empty = Totals(method.leaves, 90, CPU)
    assert method.aggregate.combine(shared, empty, method.context(0, 90)) is shared


@pytest.mark.parametrize(
    "plugin",
    ["additive", "dual-personalization", "elastic-merge", "low-rank", "popular-negatives", "row-mean"],
)
def test_plug_ins_are_refused(plugin):
    with pytest.raises(ConfigError, match=r"inconsistent|cannot be used"):
        build("fedsasrec", {}, (plugin,))


def test_options_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="does not divide"):
        build("fedsasrec", {"embedding_size": 5})
    with pytest.raises(ConfigError, match="local_epochs"):
        build("fedsasrec", {"local_epochs": 2})


def test_matrices_of_the_network_are_downloaded_in_8_bits():
    """A row of 4 numbers in 8 bits has a scale of 4 bytes beside it. Other leaves have 4 bytes a number."""
    method = build("fedsasrec", SMALL)
    coding = download_coding("int8", method, 0)
    federation = Simulation(
        method, toy_data(), BlockTraining(1), seed=0, device=CPU, dtype=torch.float64, download=coding
    )
    report = federation.run_round(0)
    others = [leaf for leaf in method.leaves if not leaf.per_item]
    matrices = [leaf for leaf in others if len(leaf.shape) == 2]
    expected = sum(leaf.shape[0] * (leaf.shape[1] + 4) for leaf in matrices)
    rest = 4 * sum(leaf.size for leaf in others if leaf not in matrices)
    assert report.bytes_down == 90 * (4 + 4) + expected + rest
    for leaf in matrices:
        exact, seen = federation.state.shared[leaf.name], federation.received[leaf.name]
        moved = (exact - leaf.initial(90, 0)).abs().amax(1, keepdim=True)
        assert ((exact - seen).abs() <= moved / 254 + 1e-9).all()
        assert not torch.equal(exact, seen)


def test_codings_change_a_round_a_little():
    """Uploads in 8 bits need single gradients, downloads do not."""
    method = build("fedsasrec", SMALL)
    plain, coded = (
        Simulation(
            method,
            toy_data(),
            BlockTraining(1),
            seed=0,
            device=CPU,
            dtype=torch.float64,
            protection=Chain(coding=upload_coding("int8") if on else None),
            download=download_coding("int8", method, 0) if on else None,
        )
        for on in (False, True)
    )
    reports = [(each.run_round(0), each.run_round(1))[1] for each in (plain, coded)]
    assert reports[1].loss == pytest.approx(reports[0].loss, rel=1e-2)
    assert reports[1].bytes_up < reports[0].bytes_up / 2
