"""Conformance tests that every method must pass in every engine, as a class for pytest.

>>> class TestMine(MethodConformance):
...     name = "mine"
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from solera.core.leaf import Home, Params
from solera.core.method import Method
from solera.core.threads import torch_threads
from solera.engine.block import BlockTraining
from solera.engine.local_training import ClientResult, LocalTraining
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import RoundResult, Simulation
from solera.methods import build
from solera.testing.toy import (
    N_CLIENTS,
    N_ITEMS,
    Order,
    Ordered,
    Watched,
    _as_single,
    backwards,
    difference,
    held,
    identical,
    part,
    relative_differences,
    run,
    same,
    shuffled,
    state,
    task,
)


@cache
def reference(case: type[MethodConformance], dtype: torch.dtype) -> Params:
    """The state after all rounds, computed once for all tests of a method."""
    return state(run(case().method(), train_one_by_one, dtype=dtype))


@cache
def first_round(
    case: type[MethodConformance], train: LocalTraining
) -> tuple[Simulation, list[ClientResult], RoundResult]:
    """One round: the simulation after it, the clients' results, and the report. Do not change them."""
    watched = Watched(train)
    simulation = run(case().method(), watched, rounds=0)
    report = simulation.run_round(0)
    return simulation, watched.results, report


class MethodConformance:
    """Tests engine agreement, undeclared uploads, resuming, and more, on 20 synthetic users.

    Subclass it with the method's `name`, and with `options` with which a few steps neither stall nor diverge.
    """

    name: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}
    plugins: ClassVar[tuple[str, ...]] = ()

    # Small batches, so that clients take different numbers of steps and their last batches differ.
    small: ClassVar[dict[str, Any]] = {
        "embedding_size": 4,
        "batch_size": 24,
        "local_epochs": 2,
        "negatives": 2,
        "learning_rate": "0.05*0.9^round",
    }
    blocks = BlockTraining(threads=2, block_samples=300)
    engines = pytest.mark.parametrize("train", [train_one_by_one, blocks], ids=["reference", "block"])

    @pytest.fixture(autouse=True)
    def surroundings(self) -> Iterator[None]:
        with torch_threads(1):  # more threads only slow down tensors this small
            yield

    def method(self, **more: Any) -> Method:
        return build(self.name, self.small | self.options | more, self.plugins)

    def expected(self, dtype: torch.dtype = torch.float64) -> Params:
        return reference(type(self), dtype)  # type: ignore[arg-type]  # mypy takes no class for hashable

    def first_round(self, train: LocalTraining) -> tuple[Simulation, list[ClientResult], RoundResult]:
        return first_round(type(self), train)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("block", "order"),
        [  # one client per block, a few, all that may share one; both layouts, and each layout alone
            (BlockTraining(3, 1), same),
            (BlockTraining(2, 300), backwards),
            (BlockTraining(1, 10**9), shuffled),
            (BlockTraining(1, 10**9, whole_up_to=0), same),
            (BlockTraining(1, 10**9, whole_up_to=10**9), same),
        ],
    )
    def test_block_is_reference(self, block: BlockTraining, order: Order) -> None:
        """1e-5 is guaranteed; both engines do the same arithmetic and agree within 1e-14."""
        train = Ordered(block, order)
        assert difference(state(run(self.method(), train)), self.expected()) <= 1e-10

    def test_reference_does_not_see_the_order_of_clients(self) -> None:
        train = Ordered(train_one_by_one, shuffled)
        assert difference(state(run(self.method(), train)), self.expected()) <= 1e-10

    def test_block_is_reference_in_float32(self) -> None:
        """The engines do the same arithmetic in another order, so results differ only by rounding.

        Measured, in units of a leaf's largest value: 8e-7 at most, whatever the blocking (float64: 1e-14).
        Adam can amplify it. Its step is learning_rate · m / (√v + ε): where the samples' gradients almost
        cancel, m and √v consist of rounding errors, and their quotient is a step of any size. With batches of
        24, 2 of 9 084 values of TestAllThatAMethodMayDo differ by up to 2e-5 (reference and block are equally
        far from float64 there), and on 150 users of MovieLens-100K some of FedMF's by 3e-5. A perceptron with
        kinks amplifies it further: in FedEM's adapters with popular negatives, rounding moves the reference
        itself by up to 0.28 from float64, and the block engine by 9e-4 from the reference. So the test
        requires that no value is far off, or no further than a hundredth of the largest effect of rounding on
        the reference, and that the block engine is on average no further from float64 than twice the distance
        of the reference.
        """
        expected, exact = self.expected(torch.float32), _as_single(self.expected())
        rounded = relative_differences(expected, exact)
        rounding, far = float(rounded.mean()), max(2e-4, float(rounded.max()) / 100)
        for block_samples in (300, 10**9):
            got = state(run(self.method(), BlockTraining(1, block_samples), dtype=torch.float32))
            assert all(value.dtype is torch.float32 for value in got.values() if value.is_floating_point())
            assert float(relative_differences(got, expected).max()) <= far
            assert float(relative_differences(got, exact).mean()) <= 2 * rounding

    def test_training_moves_everything_that_is_declared_to_move(self) -> None:
        """Otherwise an engine that does nothing would pass all tests above."""
        start, end = state(run(self.method(), train_one_by_one, rounds=0)), self.expected()
        context = self.method().context(0, N_ITEMS)
        moved = {n for stage in self.method().update.stages(context) for m in stage.moves for n in m.leaves}
        for name in moved & {key.split(" ")[1] for key in start if "/" not in key}:
            key = f"shared {name}" if f"shared {name}" in start else f"personal {name}"
            assert (start[key] != end[key]).any(), name

    @pytest.mark.parametrize("block_samples", [300, 10**9])
    def test_threads_do_not_change_a_bit(self, block_samples: int) -> None:
        one, two, three = (
            state(run(self.method(), BlockTraining(threads, block_samples), rounds=1))
            for threads in (1, 2, 3)
        )
        assert identical(one, two)
        assert identical(one, three)

    def test_both_engines_report_the_same_round(self) -> None:
        got, wanted = (self.first_round(train)[2] for train in (self.blocks, train_one_by_one))
        assert got.loss == pytest.approx(wanted.loss, rel=1e-12)
        assert got.loss > 0
        assert replace(got, loss=0) == replace(wanted, loss=0)

    @engines
    def test_training_leaves_the_state_alone(self, train: LocalTraining) -> None:
        simulation, _, _ = self.first_round(train)
        before = state(simulation)
        results = list(train(task(simulation, 1), np.arange(N_CLIENTS)))
        assert sum(len(result.clients) for result in results) == N_CLIENTS
        assert identical(state(simulation), before)

    @engines
    def test_nothing_undeclared_leaves_a_client(self, train: LocalTraining) -> None:
        method = self.method()
        simulation, results, _ = self.first_round(train)
        allowed = {leaf.sent_as for leaf in method.leaves if leaf.sent_as}
        personal = {leaf.name for leaf in method.leaves if leaf.home is Home.PERSONAL}
        assert sorted(c for r in results for c in r.clients) == list(range(N_CLIENTS))
        for result in results:
            upload = result.upload
            assert set(upload.changes) == allowed
            assert upload.n_clients == len(result.clients)
            assert int(upload.row_counts.sum()) == len(upload.rows)
            for rows in torch.split(upload.rows, upload.row_counts.tolist()):
                assert (rows.diff() > 0).all()
        assert set(simulation.state.shared) == {
            leaf.name for leaf in method.leaves if leaf.home is Home.SHARED
        }
        assert not set(simulation.state.shared) & personal

    def test_resumed_is_uninterrupted(self) -> None:
        train = BlockTraining(2, 10**9)
        whole = run(self.method(), train, rounds=2)
        shared, personal = ({n: v.clone() for n, v in part.items()} for part in whole.state.tensors())
        whole.run_round(2)
        resumed = run(self.method(), train, rounds=0)
        resumed.restore(shared, personal)
        resumed.run_round(2)
        assert identical(state(resumed), state(whole))
        everybody = np.arange(N_CLIENTS)
        assert torch.equal(resumed.scores(everybody), whole.scores(everybody))

    def test_a_copied_state_is_unaffected_by_further_rounds(self) -> None:
        simulation = run(self.method(), BlockTraining(1, 300), rounds=1)
        before, scores = state(simulation), simulation.scores(np.arange(N_CLIENTS))
        copy = simulation.state.copy()
        simulation.run_round(1)
        assert not identical(state(simulation), before)
        simulation.state = copy
        assert identical(state(simulation), before)
        assert torch.equal(simulation.scores(np.arange(N_CLIENTS)), scores)

    def test_config_round_trip(self) -> None:
        config = self.method().config
        text = config.model_dump_json()
        assert type(config).model_validate_json(text) == config
        assert build(self.name, json.loads(text), self.plugins).config.model_dump() == config.model_dump()

    def test_scores_of_one_user_are_those_in_a_batch(self) -> None:
        """After two rounds, because a table that starts at zero is first merged in the second."""
        simulation = run(self.method(), BlockTraining(1, 10**9), rounds=2)
        who = np.array([7, 0, 19, 12])
        together = simulation.scores(who)
        assert together.shape == (4, N_ITEMS)
        assert (together[0] != together[1]).all()
        for place, client in enumerate(who):
            alone = simulation.scores(np.array([client]))
            torch.testing.assert_close(alone[0], together[place], rtol=1e-12, atol=1e-12)

    def test_scoring_leaves_the_state_alone(self) -> None:
        """Neighbouring clients are scored without a copy of their tables."""
        simulation = run(self.method(), BlockTraining(1, 10**9), rounds=2)
        before = state(simulation)
        simulation.scores(np.arange(2, N_CLIENTS)).zero_()
        assert identical(state(simulation), before)

    def test_clients_that_are_not_chosen_keep_what_they_have(self) -> None:
        watched = Watched(BlockTraining(2, 10**9))
        simulation = run(self.method(clients_per_round=0.5), watched, rounds=1)
        if not held(simulation, 0):
            pytest.skip("clients hold nothing but their history")
        chosen_before: set[int] = {c for r in watched.results for c in r.clients.tolist()}
        for round_ in (1, 2):
            watched.results.clear()
            before = [held(simulation, client) for client in range(N_CLIENTS)]
            simulation.run_round(round_)
            chosen = {c for r in watched.results for c in r.clients.tolist()}
            assert len(chosen) == N_CLIENTS / 2
            assert chosen != chosen_before
            for client in range(N_CLIENTS):
                assert identical(held(simulation, client), before[client]) == (client not in chosen)
            chosen_before = chosen

    def test_padding_is_inert(self) -> None:
        """Clients with equally many steps, one of them with a shorter last batch."""
        train = BlockTraining(1, 10**9)
        simulation = run(self.method(), train, rounds=1)
        context = simulation.method.context(1, N_ITEMS)
        lengths = simulation.data.train.lengths * (1 + context.negatives)
        steps = -(-lengths // context.batch_size)
        pairs = [(a, b) for a, b in permutations(range(N_CLIENTS), 2) if steps[a] == steps[b]]
        short, long = max(pairs, key=lambda pair: lengths[pair[1]] - lengths[pair[0]])
        assert lengths[long] - lengths[short] > context.batch_size / 2
        (alone,) = train(task(simulation, 1), np.array([short]))
        (together,) = train(task(simulation, 1), np.array([long, short]))
        own, padded = (part(simulation.method, result, short) for result in (alone, together))
        assert difference(own, padded) <= 1e-12
