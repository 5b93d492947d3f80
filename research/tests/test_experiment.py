"""The whole attack on small federations: what must be found, what cannot be, and that nothing is changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import planted_uploads as planted
from solera.core.errors import ConfigError
from solera.core.upload import Upload
from solera.data.sampling import ClientData
from solera.dp.settings import DP, PaperLaplace
from solera.engine import BlockTraining, Simulation
from solera.evaluate import split
from solera.methods import build
from solera.runs import RunConfig
from solera.runs.environment import Code
from solera.study.records import Store
from solera_research.inference.attacker_view import cover
from solera_research.inference.experiment import attack
from solera_research.inference.observe import Observed
from solera_research.inference.records import AttackRecord

LEARNED = ("sign", "shadow", "shadow+popularity")


def config(method: str = "fedmf", **changes) -> RunConfig:
    options = {"embedding_size": 8} | changes.pop("options", {})
    fields = {"method": method, "dataset": "ratings", "rounds": 2, "options": options}
    return RunConfig.model_validate(fields | changes)


def attacked(data, settings=None, **changes):
    given: dict[str, Any] = {"sums": (1, 2), "clients": 20, "threads": 1} | changes
    found = attack(settings or config(), data, **given)
    return {(f.attack, f.first_round, f.last_round, f.summed): f for f in found}


@pytest.mark.parametrize("method", ["fedmf", "pfedclr"])
@pytest.mark.slow
def test_plain_uploads_give_all_interactions_away(small, method):
    """Training before personalization too, whatever its paper says."""
    found = attacked(small, config(method, options={"clients_per_round": 1}))
    for name in LEARNED:
        for rounds in ((1, 1), (2, 2), (1, 2)):
            assert found[name, *rounds, 1].target.auc > 0.99
            assert found[name, *rounds, 1].target.precision > 0.95
        assert found[name, 1, 1, 2].anybody.auc > 0.97
        assert found[name, 1, 1, 2].target.auc < found[name, 1, 1, 2].anybody.auc


@pytest.mark.slow
def test_noise_gives_nothing_away(small):
    """A dense upload of noise, put around the engine as a protection would be."""
    found = attacked(small, config(), train=planted.Noisy(), clients=30)
    truth = split(small, "strict").train.lengths
    bound = planted.four_errors(30, int(truth.min()), small.n_items - int(truth.max()))
    for name in ("touched", "norm", "sign", "shadow"):
        for rounds in ((1, 1), (2, 2), (1, 2)):
            assert found[name, *rounds, 1].target.auc == pytest.approx(0.5, abs=bound)
    assert found["popularity", 1, 1, 1].target.auc > 0.6  # needs no upload


def private(mode: str, amount: str, **changes) -> RunConfig:
    dp = DP.parse(f"delta=1e-5,clip=0.01,mode={mode},{amount}")
    return config(dp=dp, **changes).resolved()


@pytest.mark.slow
def test_noise_that_covers_nothing_hides_nothing(small):
    """The attacks see through a clip, and through where noise is added: they must find everything."""
    found = attacked(small, private("local", "noise=1e-6", rounds=1), sums=(1,))
    for name in LEARNED:
        assert found[name, 1, 1, 1].target.auc > 0.99


@pytest.mark.parametrize("mode", ["central", "distributed"])
@pytest.mark.slow
def test_the_sum_over_all_is_what_is_seen(small, mode):
    """Without a clip or noise worth the name, it is the plain sum over everybody, and nothing else."""
    dp = DP.parse(f"delta=1e-5,clip=100,mode={mode},noise=1e-10")
    found, n = attacked(small, config(dp=dp, rounds=1).resolved()), small.n_users
    plain = attacked(small, config(rounds=1), sums=(1, n))
    assert {key[-1] for key in found} == {n}
    for name in ("popularity", "norm", "sign"):
        assert found[name, 1, 1, n].target.auc == pytest.approx(plain[name, 1, 1, n].target.auc, abs=1e-6)
        assert found[name, 1, 1, n].anybody.auc == pytest.approx(plain[name, 1, 1, n].anybody.auc, abs=0.01)


@pytest.mark.slow
def test_local_noise_hides_single_uploads_and_sums(small):
    found = attacked(small, private("local", "epsilon=8"), clients=30)
    truth = split(small, "strict").train.lengths
    bound = planted.four_errors(30, int(truth.min()), small.n_items - int(truth.max()))
    for name in ("touched", "norm", "sign", "shadow"):
        for rounds, summed in (((1, 1), 1), ((2, 2), 1), ((1, 2), 1), ((1, 1), 2), ((2, 2), 2)):
            assert found[name, *rounds, summed].target.auc == pytest.approx(0.5, abs=bound)


@pytest.mark.slow
def test_laplace_noise_hides_some(small):
    """It is on all rows, so that nobody sees which of them a client touched."""
    plain = attacked(small, config(rounds=1), sums=(1,))
    noisy = attacked(small, config(noise=PaperLaplace(scale=5.0), rounds=1), sums=(1,))
    assert plain["touched", 1, 1, 1].target.auc > 0.6
    assert noisy["touched", 1, 1, 1].target.auc == 0.5
    assert noisy["sign", 1, 1, 1].target.auc < plain["sign", 1, 1, 1].target.auc - 0.05


def test_what_is_seen_of_a_clipped_sum():
    """Two clients, a row (3, 4) and a row (0, 5), both 5 long: a clip of 1 leaves a fifth; each counts 1."""
    leaf = build("fedmf", {"embedding_size": 2}).leaves
    table = next(leaf.sent_as for leaf in leaf if leaf.per_item)
    upload = Upload(
        torch.tensor([0, 2]), torch.tensor([1, 1]), {table: torch.tensor([[3.0, 4.0], [0.0, 5.0]])}
    )
    dp = DP.parse("noise=1e-9,delta=1e-5,clip=1")
    sent = tuple(each for each in leaf if each.sent_as == table)
    seen = cover(dp, None, sent, (table,), n_items=3, draw=np.random.default_rng(0))
    each = seen.each(np.array([7, 9]), upload)
    assert each[7].rows.tolist() == [0] and each[7].changes == pytest.approx(np.array([[0.6, 0.8]]))
    total = seen.total([each[7], each[9]], np.array([1.0, 100.0]))
    assert total.rows.tolist() == [0, 1, 2]
    assert total.changes == pytest.approx(np.array([[0.6, 0.8], [0.0, 0.0], [0.0, 1.0]]), abs=1e-7)


@pytest.mark.slow
def test_a_row_that_once_did_not_change_is_no_interaction(small):
    found = attacked(small)
    once, twice = found["touched", 2, 2, 1].target, found["touched", 1, 2, 1].target
    assert once.auc_touched == twice.auc_touched == 0.5
    assert twice.precision > once.precision
    assert twice.auc > once.auc


@pytest.mark.slow
def test_the_same_seed_finds_the_same(small):
    assert attacked(small) == attacked(small)
    assert attacked(small, config(seed=1)) != attacked(small)


def test_an_observer_sees_every_upload_and_changes_nothing(small):
    parts, seen = split(small, "strict"), []
    data = ClientData(parts.train, parts.excluded, small.n_items)
    method = build("fedmf", {"embedding_size": 4})

    def observer(round_, clients, upload):
        seen.append((round_, clients.tolist(), upload))

    def tables(train):
        simulation = Simulation(method, data, train, seed=0, device=torch.device("cpu"))
        for round_ in range(2):
            simulation.run_round(round_)
        return simulation.state.shared["items"]

    watched = tables(Observed(BlockTraining(1), observer))
    assert torch.equal(watched, tables(BlockTraining(1)))
    for round_ in range(2):
        assert sorted(c for r, who, _ in seen if r == round_ for c in who) == list(range(small.n_users))
    assert all(len(who) == upload.n_clients for _, who, upload in seen)


@pytest.mark.parametrize(
    "method",
    ["fedem", *(pytest.param(each, marks=pytest.mark.slow) for each in ("plgc", "fedrap", "fedncf"))],
)
@pytest.mark.slow
def test_other_methods_can_be_attacked(small, method):
    """One table per client and dense uploads, two tables, several leaves."""
    found = attacked(small, config(method, options={"local_epochs": 1}), clients=10)
    assert {name for name, *_ in found} == {"touched", "norm", "sign", "popularity", *LEARNED}
    for rounds in ((1, 1), (2, 2), (1, 2)):
        mine = found["shadow", *rounds, 1].target
        assert mine.auc > 0.9
        assert mine.precision > 5 * mine.chance


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        (config("local"), {}, "sends no changes of item rows"),
        (RunConfig(method="fedease", dataset="ratings", rounds=1), {}, "sends no changes of item rows"),
        (config(), {"clients": 31}, "cannot attack 31 of 60 clients"),
        (config(), {"sums": (1, 61)}, "cannot sum over 61 clients: 60 take part"),
        (config(), {"sums": (0,)}, "cannot sum over 0 clients"),
        (config(), {"rounds": (1, 3)}, "round 3 is not between 1 and 2"),
        (config(), {"rounds": (0, 1)}, "round 0 is not between 1 and 2"),
    ],
)
def test_what_cannot_be_attacked(small, settings, changes, message):
    with pytest.raises(ConfigError, match=message):
        attacked(small, settings, **changes)


@pytest.mark.slow
def test_a_record_comes_back_as_it_was(small, tmp_path):
    findings = tuple(attacked(small, clients=5).values())
    record = AttackRecord(
        command="solera attack fedmf",
        method="fedmf+plgc",
        protection="plain",
        dataset="ratings",
        protocol="strict",
        seed=0,
        config={},
        environment={},
        code=Code(),
        findings=findings,
    )
    store = Store(tmp_path / "attacks", AttackRecord)
    store.add(record)
    assert record.name == "ratings/fedmf+plgc--plain"
    assert store.all() == [record]
    assert record.last_round == 2
    assert record.find("sign", (1, 2)).target.clients == 5
    assert record.find("sign", (1, 2), 100) is None
