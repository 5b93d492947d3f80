"""The records behind the picture of the leak, on data where chance is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from solera.core.errors import ConfigError
from solera.data.interactions import Interactions
from solera.data.sampling import ClientData, sample
from solera.engine import BlockTraining, Simulation
from solera.evaluate import split
from solera.methods import build
from solera_research.leak import Watch, count_leak, places_in_list, published, show_leak, times_drawn

USERS, ITEMS, EACH = 60, 150, 12


@pytest.fixture(scope="module")
def random_data() -> Interactions:
    """Everybody likes items at random: there is nothing to learn, and HR@10 above chance is a leak."""
    draw = np.random.default_rng(0)
    rows = [
        (f"u{user}", f"i{item}", time)
        for user in range(USERS)
        for time, item in enumerate(draw.permutation(ITEMS)[:EACH])
    ]
    users, items, times = (list(column) for column in zip(*rows, strict=True))
    return Interactions.from_columns("random", users, items, np.array(times))


def simulation(data: Interactions, protocol: str, **options: object) -> Simulation:
    parts = split(data, protocol)
    clients = ClientData(parts.train, parts.excluded, data.n_items)
    method = build("fedmf", {"local_epochs": 1, "embedding_size": 4, **options})
    return Simulation(method, clients, BlockTraining(1), seed=0, device=torch.device("cpu"))


def test_times_drawn_are_the_samples_of_the_round(random_data):
    made = simulation(random_data, "strict", negatives=2)
    users = np.array([7, 3, 40])
    counts = times_drawn(made, users, 5)
    assert counts.sum(1).tolist() == [2 * (EACH - 2)] * 3
    for row, user in enumerate(users):
        alone = sample(made.data, np.array([user]), 2, 0, 5)
        drawn = alone.items.values[alone.positives[0] :]
        assert counts[row].tolist() == np.bincount(drawn, minlength=random_data.n_items).tolist()


def test_only_the_clients_of_a_round_draw(random_data):
    made = simulation(random_data, "strict", clients_per_round=0.5)
    drew = times_drawn(made, np.arange(USERS), 3).sum(1) > 0
    assert np.flatnonzero(drew).tolist() == made.choose(3).tolist()
    assert drew.sum() == USERS // 2


def test_held_out_items_are_drawn_at_the_chance_rate_under_strict_and_never_under_paper(random_data):
    rounds = 40
    users = np.arange(USERS)
    seen = {}
    for protocol in ("paper", "strict"):
        test = split(random_data, protocol).test.values
        made = simulation(random_data, protocol)
        seen[protocol] = sum(times_drawn(made, users, round_)[users, test] for round_ in range(rounds))
    assert seen["paper"].sum() == 0
    # A user draws 4 negatives for each of 10 training items, from the other n − 10 items.
    rate = 4 * (EACH - 2) / (random_data.n_items - (EACH - 2))
    expected = USERS * rounds * rate
    assert abs(seen["strict"].sum() - expected) < 4 * np.sqrt(expected)


def test_the_counter_finds_everything_under_paper_and_nothing_under_strict(random_data):
    found = count_leak(random_data)
    assert found["counter"]["hr@10"] == 1.0
    assert found["counter"] == pytest.approx(found["law"], abs=0.02)
    chance, error = 0.1, np.sqrt(0.1 * 0.9 / USERS)
    assert abs(found["counter, strict"]["hr@10"] - chance) < 4 * error
    assert found["published"] == []


def test_published_figures_are_those_of_the_papers():
    """By hand: PFedCLR's table 1 on ML-100K, and the best of PFedRec's on Amazon-Video."""
    of_100k = {(each["paper"], each["table"], each["row"]): each for each in published("ml-100k")}
    row = of_100k["PFedCLR", "table-1", "PFedCLR"]
    assert (row["hr@10"], row["ndcg@10"]) == (0.9989, 0.9225)
    assert {each["paper"] for each in of_100k.values()} >= {"PFedRec", "FedRAP", "PFedCLR", "FedEM"}
    assert max(each["hr@10"] for each in published("amazon-video")) == pytest.approx(0.602, abs=0.001)


def test_groups_of_a_watched_user(random_data):
    made = simulation(random_data, "paper")
    watch = Watch(made, split(random_data, "paper"))
    before = watch.places()
    assert before.drawn is None
    after = watch.after(0)
    drawn = times_drawn(made, watch.users, 0) > 0
    assert (watch.drawn == drawn).all()
    # By hand, for one group: the mean over users of the mean place of what was drawn for them.
    places = places_in_list(made.scores(watch.users))
    by_hand = np.mean([places[user][drawn[user]].mean() for user in range(USERS)])
    assert after.drawn == pytest.approx(by_hand)


def test_places_share_ties():
    scores = torch.tensor([[3.0, 1.0, 2.0, 2.0, 9.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    assert places_in_list(scores).tolist() == [[75, 0, 37.5, 37.5, 100], [50] * 5]


def test_a_memorizing_method_puts_held_out_items_where_the_never_drawn_are(random_data):
    """`local` learns nothing of others: only the leak can lift its held-out items."""
    options = {"local_epochs": 10, "learning_rate": 0.05, "embedding_size": 8}
    told = []
    found = show_leak(
        "local",
        random_data,
        options,
        rounds=8,
        on_round=lambda done, protocol, _: told.append((done, protocol)),
    )
    assert told == [(done, "paper" if done <= 8 else "strict") for done in range(1, 17)]
    last = {protocol: found[protocol]["places"][-1] for protocol in ("paper", "strict")}
    assert len(found["paper"]["places"]) == 9
    assert abs(last["paper"]["held_out"] - last["paper"]["never_drawn"]) < 5
    assert last["paper"]["held_out"] > last["strict"]["held_out"] + 20
    assert found["paper"]["hr@10"]["sampled99"] > 0.5
    assert found["strict"]["hr@10"]["sampled99"] < 0.25
    assert found["paper"]["leaky"]
    assert not found["strict"]["leaky"]


def test_a_method_without_negatives_cannot_show_it(random_data):
    with pytest.raises(ConfigError, match="choose a method of many rounds"):
        show_leak("fedease", random_data, {}, rounds=1)


@pytest.mark.slow
def test_the_same_course_is_the_same_picture(tmp_path):
    pytest.importorskip("matplotlib")
    from solera_research.leak_plot import draw

    places = [{"held_out": 50.0, "never_drawn": 50.0, "drawn": None, "train": 50.0}]
    places.append({"held_out": 80.0, "never_drawn": 79.0, "drawn": 20.0, "train": 95.0})
    course = {"places": places, "hr@10": {"sampled99": 0.5}}
    found = {"rounds": 1, "paper": {**course, "leaky": True}, "strict": {**course, "leaky": False}}
    first, second = (draw(found, tmp_path / name) for name in ("one", "two.svg"))
    assert [path.name for path in (*first, *second)] == ["one.png", "one.svg", "two.png", "two.svg"]
    assert first[1].read_bytes() == second[1].read_bytes()
    text = first[1].read_text(encoding="utf-8")
    assert text.count("LEAKY") == 1
    assert text.count("HELD-OUT ITEM") == 2
