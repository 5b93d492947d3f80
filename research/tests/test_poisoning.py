"""Malicious clients: that attacks work where nothing keeps them from it, and that defences do."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from in_process import solera
from solera.core.errors import ConfigError
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation
from solera.methods import build
from solera.runs.settings import RunConfig
from solera.study.records import Store
from solera_research.inference.shadow import Public
from solera_research.poisoning.attacks import ATTACKS, CLAIM, Poisoned
from solera_research.poisoning.crowd import Crowd
from solera_research.poisoning.experiment import AttackPlan, Outcome, least_popular, poison
from solera_research.poisoning.records import PoisonRecord

USERS, ITEMS = 40, 60


@pytest.fixture(scope="module")
def toy() -> Interactions:
    """40 users of 12 of the first 45 items; the last 15 have one user each."""
    draw = np.random.default_rng(0)
    pairs = [(user, item) for user in range(USERS) for item in draw.permutation(45)[:12]]
    pairs += [(item - 45, item) for item in range(45, ITEMS)]
    pairs.sort(key=lambda pair: (pair[0], -pair[1]))  # the rare item is met first, and trained on
    users, items = ([f"{kind}{pair[place]}" for pair in pairs] for place, kind in enumerate("ui"))
    return Interactions.from_columns("toy", users, items, np.arange(len(pairs)))


def run(toy: Interactions, plot: AttackPlan, name: str = "fedmf", rounds: int = 15, **options) -> Outcome:
    plugins = ("robust",) if "robust" in options else ()
    config = RunConfig(method=name, dataset="toy", rounds=rounds, options=options, plugins=plugins)
    return poison(config, toy, plot, threads=1)


LOUD: dict[str, Any] = {"malicious": 0.05, "targets": 2, "boost": 200.0}


@pytest.mark.parametrize("name", ["fedmf", "pfedrec"])
def test_promotion_takes_the_targets_from_nobody_to_everybody(toy: Interactions, name: str) -> None:
    options: dict[str, Any] = {"item_rate": 1.0} if name == "pfedrec" else {}
    assert run(toy, AttackPlan(attack="none", targets=2), name, **options).exposure < 0.1
    found = run(toy, AttackPlan(attack="promotion", **LOUD), name, **options)
    assert found.malicious_clients == 2
    assert found.exposure > 0.9


@pytest.mark.parametrize("defence", ["row-cap", "trimmed-mean", "median", "krum", "multi-krum"])
@pytest.mark.slow
def test_defences_keep_them_from_it(toy: Interactions, defence: str) -> None:
    """The targets are seen about as often as under the same defence without an attack, and seldom."""
    calm, attacked = (
        run(toy, AttackPlan(attack=attack, **LOUD), robust=defence).exposure
        for attack in ("none", "promotion")
    )
    assert attacked <= calm + 0.05
    assert attacked < 0.25


def test_a_bounded_norm_can_be_spent_on_few_rows(toy: Interactions) -> None:
    """An ordinary client has about 50 rows, a malicious one two, which are then five times as long."""
    bounded = run(toy, AttackPlan(attack="promotion", **LOUD), robust="norm-bound").exposure
    assert 0.15 < bounded < 0.5


def test_alignment_raises_the_targets(toy: Interactions) -> None:
    """In the mean of popular rows an item is nobody's first choice, but no longer the last."""
    simulation, engine = federation("alignment", 1e9)
    before = simulation.state.shared["items"].clone()
    simulation.run_round(0)
    popular = before[torch.from_numpy(np.argsort(-engine.crowd.popularity, kind="stable")[:20].copy())].mean(
        0
    )
    distances = [
        (table[engine.targets] - popular).norm(dim=1) for table in (before, simulation.state.shared["items"])
    ]
    assert (distances[1] < 0.35 * distances[0]).all()


def federation(
    attack: str, boost: float, name: str = "fedmf", malicious: int = 5
) -> tuple[Simulation, Poisoned]:
    draw = np.random.default_rng(1)
    histories = Ragged.from_lists([draw.permutation(ITEMS)[:8].tolist() for _ in range(USERS + malicious)])
    method = build(name, {"embedding_size": 4, "local_epochs": 2})
    public = Public.of(histories, ITEMS)
    train = BlockTraining(1)
    crowd = Crowd(method, public, train, seed=0, dtype=torch.float64)
    engine = Poisoned(train, crowd, attack, USERS, torch.tensor([3, 50]), boost)
    data = ClientData(histories, histories.sorted_unique(), ITEMS)
    return Simulation(method, data, engine, seed=0, device=torch.device("cpu"), dtype=torch.float64), engine


@pytest.mark.parametrize("attack", ATTACKS)
def test_honest_clients_stay_as_they_are_and_the_others_lie(attack: str) -> None:
    simulation, engine = federation(attack, 2.0, "fedrecon")
    honest, _ = federation(attack, 2.0, "fedrecon")
    everybody = np.arange(USERS + 5)
    results = list(simulation.train_clients(0, everybody))
    plain = list(BlockTraining(1)(task_of(honest), everybody[:USERS]))
    assert sorted(c for result in results for c in result.clients.tolist()) == everybody.tolist()
    for one, two in zip(results, plain, strict=False):
        assert torch.equal(one.upload.changes["items"], two.upload.changes["items"])
    longest = engine.crowd.longest_row("items")
    for result in results[len(plain) :]:
        (client,) = result.clients.tolist()
        assert client >= USERS
        assert (result.claims is not None and int(result.claims[0]) == CLAIM) == (attack == "weight")
        like, change = engine.ordinary(client), result.upload.changes["items"]
        match attack:
            case "random":
                assert float(change.norm()) == pytest.approx(2 * float(like.changes["items"].norm()))
            case "sign-flip":
                assert torch.equal(change, -2 * like.changes["items"])
            case _:
                assert result.upload.rows.tolist() == [3, 50]
                assert float(change.norm(dim=1).max()) <= 2 * longest * (1 + 1e-9)


def task_of(simulation: Simulation):
    from solera.engine.local_training import Task

    return Task(simulation.method, simulation.data, simulation.state, simulation.method.context(0, ITEMS), 0)


def test_promotion_is_the_way_up_for_the_crowd() -> None:
    simulation, engine = federation("promotion", 1.0)
    results = list(simulation.train_clients(0, np.arange(USERS + 5)))
    rows = simulation.state.shared["items"][engine.targets]
    scores = [
        engine.crowd.scores(engine.targets, {"items": each}).mean(0)
        for each in (rows, rows + results[-1].upload.changes["items"])
    ]
    assert (scores[1] > scores[0]).all()


@pytest.mark.slow
def test_an_inflated_weight_decides_unless_it_is_bounded(toy: Interactions) -> None:
    plot: dict[str, Any] = {"attack": "weight", "malicious": 0.05, "targets": 2, "boost": 1.0}
    believed, catalogue, bounded = (
        run(toy, AttackPlan(**plot, trust_weights=trust), "fedrecon", 10, **options).exposure
        for trust, options in ((True, {}), (False, {}), (False, {"robust": "weight-bound"}))
    )
    assert believed > 0.8
    assert 0.2 < catalogue < believed - 0.2
    assert bounded < 0.15


def test_the_same_again(toy: Interactions) -> None:
    one, two = (run(toy, AttackPlan(attack="random", malicious=0.1, targets=2), rounds=2) for _ in range(2))
    assert one == two


def test_targets_are_unpopular(toy: Interactions) -> None:
    train = Ragged.from_lists([[0, 1, 2, 3], [0, 1, 2], [0, 1, 3], [0, 7]])
    assert set(least_popular(train, 8, 2, 0).tolist()) == {4, 5}
    with pytest.raises(ConfigError, match="cannot choose 3 targets among 2"):
        least_popular(train, 8, 3, 0)


@pytest.mark.parametrize(
    ("name", "attack", "why"),
    [
        ("fedmf", "promotoin", "unknown attack 'promotoin'"),
        ("fedem", "random", "cannot be poisoned here"),
        ("fedease", "random", "cannot be poisoned here"),
        ("fedhist", "random", "cannot be poisoned here"),
        ("local", "random", "sends no changes"),
    ],
)
def test_what_cannot_be_tried_says_why(toy: Interactions, name: str, attack: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        run(toy, AttackPlan(attack=attack, targets=2), name, rounds=1)


@pytest.mark.slow
def test_table_json_and_record_say_the_same(toy: Interactions, tmp_path) -> None:
    rows = [
        "user,item,time",
        *(f"{u},{i},{t}" for t, (u, i) in enumerate(zip(toy.users, toy.items, strict=True))),
    ]
    (tmp_path / "ratings.csv").write_text("\n".join(rows) + "\n")
    command = ["poison", "fedmf", "--data", "ratings.csv", "--rounds", "2"]
    command += ["--malicious", "0.1", "--targets", "2", "--defence", "trimmed-mean", "-o", "trim=0.3"]
    shown, printed = (solera(*command, *more, cwd=tmp_path) for more in (("--record", "kept"), ("--json",)))
    assert shown.returncode == 0, shown.stderr
    assert "round 2/2" in shown.stderr
    (kept,) = Store(tmp_path / "kept", PoisonRecord).all()
    assert kept.name == "ratings/fedmf--promotion-0.1x1--trimmed-mean-trim=0.3"
    assert json.loads(printed.stdout)["outcome"] == kept.outcome.model_dump()
    assert f"{kept.outcome.ndcg:.4f}" in shown.stdout
    assert kept.config["options"]["trim"] == 0.3
