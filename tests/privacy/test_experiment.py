"""The whole attack on small federations: what must be found, what cannot be, and that nothing is changed."""

from __future__ import annotations

import planted_uploads as planted
import pytest
import torch

from solera.core.errors import ConfigError
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation
from solera.evaluate import split
from solera.methods import build
from solera.privacy.experiment import attack
from solera.privacy.observe import Observed
from solera.privacy.records import AttackRecord, read_all, write
from solera.runs import RunConfig

LEARNED = ("sign", "shadow", "shadow+popularity")


def config(method: str = "fedmf", **changes) -> RunConfig:
    options = {"embedding_size": 8} | changes.pop("options", {})
    fields = {"method": method, "dataset": "ratings", "rounds": 2, "options": options}
    return RunConfig.model_validate(fields | changes)


def attacked(data, settings=None, **changes):
    given = {"sums": (1, 2), "clients": 20, "threads": 1} | changes
    found = attack(settings or config(), data, **given)
    return {(f.attack, f.first_round, f.last_round, f.summed): f for f in found}


@pytest.mark.parametrize("method", ["fedmf", "pfedclr"])
def test_plain_uploads_give_all_interactions_away(small, method):
    """Training before personalization too, whatever its paper says."""
    found = attacked(small, config(method, options={"clients_per_round": 1}))
    for name in LEARNED:
        for rounds in ((1, 1), (2, 2), (1, 2)):
            assert found[name, *rounds, 1].target.auc > 0.99
            assert found[name, *rounds, 1].target.precision > 0.95
        assert found[name, 1, 1, 2].anybody.auc > 0.97
        assert found[name, 1, 1, 2].target.auc < found[name, 1, 1, 2].anybody.auc


def test_noise_gives_nothing_away(small):
    """A dense upload of noise, put around the engine as a protection would be."""
    found = attacked(small, config(), train=planted.Noisy(), clients=30)
    truth = split(small, "strict").train.lengths
    bound = planted.four_errors(30, int(truth.min()), small.n_items - int(truth.max()))
    for name in ("touched", "norm", "sign", "shadow"):
        for rounds in ((1, 1), (2, 2), (1, 2)):
            assert found[name, *rounds, 1].target.auc == pytest.approx(0.5, abs=bound)
    assert found["popularity", 1, 1, 1].target.auc > 0.6  # needs no upload


def test_a_row_that_once_did_not_change_is_no_interaction(small):
    found = attacked(small)
    once, twice = found["touched", 2, 2, 1].target, found["touched", 1, 2, 1].target
    assert once.auc_touched == twice.auc_touched == 0.5
    assert twice.precision > once.precision
    assert twice.auc > once.auc


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


@pytest.mark.parametrize("method", ["fedem", "plgc", "pfedrec", "fedrap", "fedncf"])
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
        (config(), {"sums": (1, 61)}, "no sum of 61 clients: 60 take part"),
        (config(), {"sums": (0,)}, "no sum of 0 clients"),
        (config(), {"rounds": (1, 3)}, "round 3 is none of 1 to 2"),
        (config(), {"rounds": (0, 1)}, "round 0 is none of 1 to 2"),
    ],
)
def test_what_cannot_be_attacked(small, settings, changes, message):
    with pytest.raises(ConfigError, match=message):
        attacked(small, settings, **changes)


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
        code={},
        findings=findings,
    )
    path = write(record, tmp_path)
    assert path == tmp_path / "ratings" / "fedmf+plgc--plain.json"
    assert read_all(tmp_path) == [record]
    assert record.last_round == 2
    assert record.find("sign", (1, 2)).target.clients == 5
    assert record.find("sign", (1, 2), 100) is None
