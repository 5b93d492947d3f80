"""What the server gets to see: sums under as much noise as is said, of as many clients as were expected."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from solera.core.errors import ConfigError
from solera.core.leaf import Home, Leaf
from solera.core.protection import RoundChain
from solera.core.randomness import Purpose, generator
from solera.core.upload import Sums, Totals, Upload
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.dp.accounting import Releases
from solera.dp.noise import Seeded, SeededNoise, System, SystemNoise
from solera.dp.rounds import CLIP, PrivateRounds
from solera.dp.settings import DP, check_private
from solera.engine import train_one_by_one
from solera.engine.block import BlockTraining
from solera.engine.local_training import Task
from solera.engine.server import Server
from solera.engine.simulation import Simulation
from solera.methods import build, find
from solera.methods.parts import Mean
from solera.runs import AfterRound, RunConfig, StoppedError, train

CPU = torch.device("cpu")
LEAVES = (Leaf("items", (4,), Home.SHARED, per_item=True, upload=True),)
N_ITEMS = 5000


def rounds(rate: float = 0.5, users: int = 400, **dp) -> PrivateRounds:
    return PrivateRounds(
        DP.model_validate({"noise": 2.0, "delta": 1e-5, "clip": 3.0} | dp), rate, users, Seeded(0)
    )


def one_row_each(clients: int) -> Upload:
    """Client c changes row c by (100, 0, 0, 0)."""
    change = torch.zeros(clients, 4)
    change[:, 0] = 100
    return Upload(torch.arange(clients), torch.ones(clients, dtype=torch.int64), {"items": change})


def released(private: PrivateRounds, clients: int, round_: int = 0) -> Totals:
    begun = private.begin(round_, LEAVES, private.memory())
    totals = Totals(LEAVES, N_ITEMS, CPU)
    totals.add(begun.send(np.arange(clients), one_row_each(clients)))
    return begun.release(totals)


@pytest.mark.parametrize(
    ("dp", "std"),
    [
        ({}, 6.0),  # 2 clips of 3
        ({"mode": "local"}, 6.0 * math.sqrt(180)),
        ({"mode": "distributed", "dropout": 0.2}, 6.0 * math.sqrt(180 / 160)),
        ({"adaptive": 0.5}, 3.0 / math.sqrt(2.0**-2 - 20.0**-2)),  # σ_b is a twentieth of 200
    ],
)
def test_noise_is_as_large_as_it_has_to_be_and_everywhere(dp: dict, std: float) -> None:
    sums = released(rounds(**dp), 180).leaf("items").change
    clean = torch.zeros_like(sums)
    clean[:180, 0] = 3.0  # clipped
    noise = (sums - clean).flatten()
    n = len(noise)
    assert float(noise.mean()) == pytest.approx(0, abs=4 * std / math.sqrt(n))
    assert float(noise.std()) == pytest.approx(std, rel=4 / math.sqrt(2 * n))
    assert float((noise.abs() < std).double().mean()) == pytest.approx(0.6827, abs=0.015)
    assert bool((sums != 0).all())  # rows that nobody touched look like any other
    for one, other in ((noise[:-1], noise[1:]), (noise[: n // 2], noise[n // 2 :])):
        assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 4 / math.sqrt(len(one))


def test_the_mean_is_by_the_clients_that_were_expected() -> None:
    private = rounds(noise=1e-9)
    totals = released(private, 180)
    assert totals.weight == private.expected == 200
    assert float(Mean().change(totals, "items")[0, 0]) == pytest.approx(3 / 200)
    weights = totals.leaf("items").weight
    assert weights.unique().tolist() == [200]  # who touched what is not in it


def test_rounds_have_noise_of_their_own_and_the_same_when_made_again() -> None:
    first, again, next_ = (released(rounds(), 10, r).leaf("items").change for r in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, next_)


def test_every_client_is_drawn_by_a_coin_of_its_own() -> None:
    private = rounds(rate=0.3, users=500)
    taken = np.zeros((400, 500))
    for round_ in range(400):
        taken[round_, private.choose(np.arange(500), round_)] = 1
    assert taken.mean() == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / taken.size))
    sizes = taken.sum(1)  # binomial: not always the same
    assert sizes.var() == pytest.approx(500 * 0.21, rel=0.3)
    pairs = np.asarray(np.corrcoef(taken[:, :60].T))[np.triu_indices(60, 1)]
    assert abs(pairs.mean()) < 4 / math.sqrt(400 * len(pairs))


def test_an_adaptive_clip_finds_its_quantile() -> None:
    """Lengths 1 to 400, every client in every round: half are shorter than 200."""
    private = rounds(rate=1.0, users=400, adaptive=0.5, clip=10.0, noise=1.0)
    change = torch.zeros(400, 4)
    change[:, 1] = torch.arange(1, 401)
    upload = Upload(torch.arange(400), torch.ones(400, dtype=torch.int64), {"items": change})
    memory = private.memory()
    for round_ in range(60):
        begun = private.begin(round_, LEAVES, memory)
        begun.send(np.arange(400), upload)
        memory = begun.memory()
    assert float(memory[CLIP]) == pytest.approx(200, rel=0.15)


def test_too_few_clients_for_an_adaptive_clip() -> None:
    with pytest.raises(ConfigError, match="too few"):
        rounds(users=20, adaptive=0.5)


def test_a_distributed_sum_of_too_few_is_not_opened() -> None:
    private = rounds(mode="distributed", dropout=0.2)
    for clients, given_up in ((159, True), (160, False)):
        begun = private.begin(0, LEAVES, {})
        begun.send(np.arange(clients), one_row_each(clients))
        assert begun.given_up is given_up
    begun = private.begin(0, LEAVES, {})
    begun.send(np.arange(160), one_row_each(160))
    assert begun.std == pytest.approx(6.0)  # at the least number, exactly the central noise


@pytest.mark.parametrize("noise", [SeededNoise(0, 0), SystemNoise()])
def test_sources_are_standard_normal(noise) -> None:
    zeros = torch.zeros(301, 333, dtype=torch.float64)
    drawn = noise.cover(zeros, 1.0, 1.0)
    n = drawn.numel()
    assert drawn.shape == (301, 333)
    assert drawn.dtype == torch.float64
    assert float(drawn.mean()) == pytest.approx(0, abs=5 / math.sqrt(n))
    assert float(drawn.var()) == pytest.approx(1, abs=5 * math.sqrt(2 / n))
    assert float((drawn**4).mean()) == pytest.approx(3, abs=5 * math.sqrt(96 / n))
    assert not torch.equal(noise.cover(zeros[0], 1.0, 1.0), noise.cover(zeros[0], 1.0, 1.0))


@pytest.mark.parametrize(
    ("name", "plugins", "why"),
    [
        ("fedhist", [], "changed a row"),
        ("fedmf", ["row-mean"], "changed a row"),
        ("fedmf", ["row-mean", "server-optimizer"], "changed a row"),
        ("fedmf", ["popular-negatives"], "negatives"),
        ("fedem", [], "single uploads"),
        ("fedfast", [], "single uploads"),
        ("gpfedrec", [], "single uploads"),
        ("perfedrec", [], "single uploads"),
        ("pfedgraph", [], "single uploads"),
        ("local", [], "send nothing"),
        ("fedrap-d", [], "send nothing"),
    ],
)
def test_refused_with_a_reason(name: str, plugins: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_private(build(name, {}, plugins))
    config = RunConfig(method=name, plugins=tuple(plugins), dataset="x", dp=DP(noise=1, delta=1e-5))
    with pytest.raises(ConfigError, match=why):
        config.resolved()


def test_what_is_chosen_on_data_is_refused() -> None:
    dp = DP(noise=1, delta=1e-5)
    with pytest.raises(ConfigError, match="patience"):
        RunConfig(method="fedmf", dataset="x", dp=dp, patience=3).resolved()


def run(small, **changes):
    fields = {"method": "fedmf", "dataset": "ratings", "rounds": 4, "options": {"embedding_size": 4}}
    return train(RunConfig.model_validate(fields | changes), small, threads=1)


OPTIONS = {"embedding_size": 4, "clients_per_round": 0.5}


@pytest.mark.parametrize(
    "dp",
    [
        "epsilon=2,delta=1e-3,clip=0.5",
        "noise=1.1,delta=1e-3,accountant=rdp",
        "epsilon=8,delta=1e-3,mode=local",
        "epsilon=2,delta=1e-3,mode=distributed,dropout=0.5",
        "noise=1,delta=1e-3,adaptive=0.5",
    ],
)
def test_a_run_states_its_privacy_and_takes_the_last_round(small, dp: str) -> None:
    result = run(small, dp=DP.parse(dp).model_dump(), options=OPTIONS).result
    stated = result.privacy
    resolved = DP.parse(dp).resolved(Releases(0.5, 4))
    assert (stated["epsilon"], stated["delta"], stated["unit"]) == (resolved.epsilon, 1e-3, "user")
    assert stated["noise_multiplier"] == resolved.noise
    assert stated["clip"] == resolved.clip
    assert (stated["mode"], stated["accountant"]) == (resolved.mode, resolved.accountant)
    local = resolved.mode == "local"
    assert stated["neighbouring"] == ("replace one user's data" if local else "add or remove one user")
    assert ("Poisson" in stated["sampling"] and "0.5" in stated["sampling"]) is not local
    assert stated["randomness"] == "seeded: for research"
    assert result.selected_round == result.rounds == 4
    if resolved.mode == "distributed":
        assert stated["epsilon_if_it_is_known_who_takes_part"] > stated["epsilon"]


def test_without_dp_nothing_changes() -> None:
    """The round of old by hand: a fixed number of clients, changes as they are, the weighted mean."""
    draw = np.random.default_rng(0)
    histories = Ragged.from_lists([draw.permutation(40)[:n].tolist() for n in draw.integers(3, 12, 30)])
    data = ClientData(histories, histories.sorted_unique(), 40)
    for name in ("fedmf", "pfedclr", "colr"):
        method = build(name, OPTIONS)
        simulation = Simulation(method, data, BlockTraining(1), seed=3, device=CPU)
        shared = {name: value.clone() for name, value in simulation.state.shared.items()}
        task = Task(method, data, simulation.state, method.context(0, 40, 3), 3)
        clients = np.sort(generator(3, Purpose.CLIENTS, 0).choice(30, 15, replace=False))
        totals = Totals(method.leaves, 40, CPU)
        for result in BlockTraining(1)(task, clients):
            sizes = torch.from_numpy(data.train.lengths[result.clients]).double()
            totals.add(result.upload, sizes if method.aggregate.weighted else None)
        expected = method.aggregate.combine(shared, totals, method.context(0, 40, 3))
        assert simulation.run_round(0).clients == 15
        for key, value in expected.items():
            assert torch.equal(simulation.state.shared[key], value), (name, key)


def test_without_dp_a_result_says_nothing_of_privacy(small) -> None:
    assert run(small).result.privacy is None


def test_both_engines_and_a_resumed_run_are_the_same(small, tmp_path, monkeypatch) -> None:
    dp = DP.parse("noise=0.5,delta=1e-3,clip=0.5,adaptive=0.5").model_dump()
    options = OPTIONS | {"local_epochs": 1}
    whole = run(small, dp=dp, options=options, precision="double")
    with monkeypatch.context() as patch:
        patch.setattr("solera.runs.federation.BlockTraining", lambda threads: train_one_by_one)
        other = run(small, dp=dp, options=options, precision="double")
    assert whole.test["full"] == pytest.approx(other.test["full"], abs=1e-12)
    config = RunConfig.model_validate(
        {"method": "fedmf", "dataset": "ratings", "rounds": 4, "options": options, "dp": dp}
        | {"precision": "double"}
    )
    stop = threading.Event()
    with pytest.raises(StoppedError):
        train(
            config,
            small,
            out=tmp_path / "r",
            threads=1,
            stop=stop,
            callbacks=[AfterRound(lambda _: stop.set())],
        )
    resumed = train(config, small, out=tmp_path / "r", resume=True, threads=1)
    assert resumed.test == whole.test


def test_a_method_that_weights_by_data_counts_everybody_alike(small) -> None:
    assert find("pfedclr").aggregate.weighted
    options = {"embedding_size": 4, "clients_per_round": 0.5}
    assert run(small, method="pfedclr", options=options, dp={"noise": 1, "delta": 1e-3}).result.privacy


def test_clients_that_cover_their_uploads_send_whole_tables(small) -> None:
    """Which rows they touched would show otherwise."""
    whole = small.n_items * 4 * 4
    for mode, up in (("central", None), ("local", whole), ("distributed", whole)):
        dp = {"noise": 1, "delta": 1e-3, "mode": mode, "dropout": 0.5}
        sent = run(small, options=OPTIONS, dp=dp).result.bytes.up
        assert sent == up if up else sent < whole


def test_what_several_clients_sent_together_has_to_be_clipped() -> None:
    """Two clients whose clips are 3 send no more than 6."""
    method = build("fedmf", {"embedding_size": 4})
    for change, taken in ((6.0, True), (6.1, False), (math.nan, False)):
        begun = rounds().begin(0, method.leaves, {})
        server = Server(method, {}, 5, CPU, protection=RoundChain((begun,)))
        changes = {"items": torch.tensor([[change, 0.0, 0.0, 0.0]], dtype=torch.float64)}
        sums = Sums(torch.tensor([3]), torch.tensor([2.0]), 2.0, changes)
        if taken:
            server.merge(sums)
            assert begun.clients == 2
        else:
            with pytest.raises(ConfigError, match="clip every client's upload"):
                server.merge(sums)
    begun = rounds(adaptive=0.5).begin(0, method.leaves, rounds(adaptive=0.5).memory())
    with pytest.raises(ConfigError, match="omit adaptive"):
        begun.take_sums(sums)


def test_coins_of_the_operating_system() -> None:
    """A tenth of 100,000, within six standard deviations; never the same again."""
    private = replace(rounds(rate=0.1, users=100_000), randomness=System())
    everybody = np.arange(100_000)
    first, second = private.choose(everybody, 0), private.choose(everybody, 0)
    assert abs(len(first) - 10_000) < 6 * math.sqrt(100_000 * 0.1 * 0.9)
    assert abs(len(np.intersect1d(first, second)) - 1_000) < 6 * math.sqrt(100_000 * 0.01 * 0.99)
