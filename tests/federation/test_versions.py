"""The gate, canaries, rollback and retention of versions. Numbers of the gate are worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from solera.core.errors import RunError
from solera.federation.server.gate import Tally, decide, flip_probability
from solera.federation.server.versions import Versions, is_canary

THREE = math.log(3)  # flips one answer in four


def tally(users: int, yes: int) -> Tally:
    return Tally(users=users, yes=yes, epsilon=THREE)


def test_the_estimate_undoes_the_flips():
    """q = 1/4. Of 100 answers 40 are yes: (0.40 - 0.25) / 0.5 = 0.30, ± √(0.4 · 0.6 / 100) / 0.5 = 0.098."""
    assert flip_probability(THREE) == pytest.approx(0.25)
    assert tally(100, 40).rate == pytest.approx(0.30)
    assert tally(100, 40).error == pytest.approx(0.09798, abs=1e-5)
    assert tally(100, 25).rate == pytest.approx(0.0)
    assert tally(100, 75).rate == pytest.approx(1.0)
    assert tally(100, 10).rate == pytest.approx(-0.30)  # noise
    assert tally(0, 0).error == math.inf


def test_the_estimate_is_unbiased():
    """Expected yes of n users with h hits: h · 3/4 + (n - h) · 1/4. For 200 and 60: 45 + 35 = 80."""
    assert tally(200, 80).rate == pytest.approx(60 / 200)


@pytest.mark.parametrize(
    ("yes", "passes"),
    # Published: 4,000 of 10,000, rate 0.30, error 0.0098. Floor 0.95 · 0.30 = 0.285. With 3,790 yes: rate
    # 0.258, noise √(0.0097² + 0.0093²) = 0.01344, and 0.285 - 0.02688 = 0.2581 is just above 0.2580.
    [(4200, True), (4000, True), (3925, True), (3795, True), (3789, False), (3000, False)],
)
def test_a_drop_beyond_the_noise_does_not_pass(yes, passes):
    found = decide(tally(10_000, yes), tally(10_000, 4000), least_users=50, largest_drop=0.05)
    assert found.passes is passes, found.reason


def test_too_few_answers_do_not_pass_however_good():
    found = decide(tally(49, 49), None, least_users=50, largest_drop=0.05)
    assert not found.passes
    assert found.reason == "only 49 users answered; the gate needs 50"
    assert decide(tally(50, 49), None, least_users=50, largest_drop=0.05).passes


@pytest.fixture
def versions(tmp_path):
    made = Versions(tmp_path)

    def add(count: int = 1) -> None:
        for _ in range(count):
            number = len(made.all()) + 1
            made.add({"items": torch.full((2,), float(number))}, {}, round_=number, catalogue=1, time=number)

    made.extra = add  # type: ignore[attr-defined]
    return made


def test_versions_are_numbered_and_keep_their_parameters(versions):
    versions.extra(2)
    assert [(v.number, v.round, v.outcome) for v in versions.all()] == [
        (1, 1, "candidate"),
        (2, 2, "candidate"),
    ]
    assert versions.load(2).shared["items"].tolist() == [2.0, 2.0]
    assert versions.standing.published is None
    with pytest.raises(RunError, match="version 9 is not kept"):
        versions.load(9)


def test_a_canary_is_promoted(versions):
    versions.extra(2)
    versions.publish(1, 10)
    versions.try_out(2, 20)
    assert (versions.standing.published, versions.standing.canary, versions.standing.since) == (1, 2, 20)
    versions.publish(2, 30)
    assert versions.standing.model_dump() == {
        "published": 2,
        "former": 1,
        "canary": None,
        "since": 30,
        "rollbacks": 0,
    }


def test_a_canary_is_rolled_back(versions):
    versions.extra(3)
    versions.publish(1, 10)
    versions.publish(2, 20)
    versions.try_out(3, 30)
    back = versions.roll_back("worse", 40)
    assert back.number == 2
    standing = versions.standing
    assert (standing.published, standing.former, standing.canary, standing.rollbacks) == (2, 1, None, 1)
    assert (versions.get(3).outcome, versions.get(3).reason) == ("rolled back", "worse")


def test_without_a_canary_the_version_before_comes_back(versions):
    versions.extra(2)
    versions.publish(1, 10)
    with pytest.raises(RunError, match="no earlier version"):
        versions.roll_back("worse", 15)
    versions.publish(2, 20)
    assert versions.roll_back("worse", 30).number == 1
    assert versions.standing.published == 1
    with pytest.raises(RunError, match="no earlier version"):  # going back and forth is not going back
        versions.roll_back("worse", 40)


def test_one_can_go_back_to_any_version_that_is_kept(versions):
    versions.extra(4)
    versions.publish(1, 10)
    versions.publish(4, 20)
    assert versions.roll_back("by hand", 30, to=2).number == 2
    with pytest.raises(RunError, match="already published"):
        versions.roll_back("by hand", 40, to=2)


def test_retention_spares_what_is_in_use(versions):
    versions.extra(7)
    versions.publish(2, 10)
    versions.publish(3, 20)
    versions.try_out(4, 30)
    assert versions.prune(keep=2) == [1, 5]
    assert [v.number for v in versions.all()] == [2, 3, 4, 6, 7]
    assert versions.prune(keep=2) == []


def test_numbers_are_not_given_twice_after_pruning(versions):
    versions.extra(3)
    versions.publish(3, 10)
    versions.prune(keep=1)
    made = versions.add({"items": torch.zeros(2)}, {}, round_=9, catalogue=1, time=0)
    assert made.number == 4


def test_canaries_are_a_share_of_the_nodes_and_stay_the_same(versions):
    versions.extra(2)
    versions.publish(1, 10)
    versions.try_out(2, 20)
    nodes = range(2000)
    chosen = {node for node in nodes if versions.target(node, 0.1) == 2}
    assert 150 < len(chosen) < 250  # 200 ± 3.7 standard deviations of 13.4
    assert chosen == {node for node in nodes if is_canary(node, 2, 0.1)}
    assert all(versions.target(node, 0.1) == 1 for node in set(nodes) - chosen)
    assert chosen < {node for node in nodes if is_canary(node, 2, 0.2)}
    assert len(chosen & {node for node in nodes if is_canary(node, 3, 0.1)}) < 60  # other nodes next time
    assert all(is_canary(node, 2, 1.0) for node in nodes)
    assert not any(is_canary(node, 2, 0.0) for node in nodes)


def test_damage_is_told(versions, tmp_path):
    versions.extra()
    versions.publish(1, 10)
    (tmp_path / "versions" / "standing.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        _ = versions.standing
