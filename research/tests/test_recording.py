"""What is recorded of rounds is what happened in them, and recording changes nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from solera.core.errors import ConfigError
from solera.data.datasets import load
from solera.dp.settings import DP, PaperLaplace
from solera.engine.simulation import Simulation
from solera.evaluate import split
from solera.methods import find
from solera.runs import RunConfig
from solera.runs.federation import clients_of, federation
from solera_research.figures.course import train
from solera_research.figures.recording import Recorder, by_activity, is_full, middling, spread

USERS, ITEMS = 24, 30  # few enough to look at all of them


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    draw = random.Random(1)
    rows = ["user,item,time"]
    for user in range(USERS):
        liked = draw.sample(range(ITEMS), 6 + user % 5)
        rows += [f"u{user},i{item},{len(rows) + n}" for n, item in enumerate(liked)]
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    path.write_text("\n".join(rows) + "\n")
    return load(str(path))


def config(method: str, rounds: int = 4, **changes) -> RunConfig:
    options = {"embedding_size": 4, "local_epochs": 2} | changes.pop("options", {})
    return RunConfig(method=method, dataset="ratings", rounds=rounds, options=options, **changes)


def simulate(data, method: str, rounds: int, **options):
    """A simulation before its rounds, and who looks at it."""
    settings = config(method, rounds, precision="double", options=options).resolved()
    built = find(settings.method, settings.options)
    simulation = federation(settings, built, clients_of(split(data, "strict")), threads=1, device="cpu")
    assert isinstance(simulation, Simulation)
    return simulation, Recorder(simulation, rounds, uploads=True)


def one_round(simulation, recorder, number: int) -> None:
    recorder.begin(number)
    simulation.run_round(number)
    recorder.end(number)


@pytest.mark.parametrize("method", ["fedmf", "pfedrec", "pfedclr", "fedem", "gpfedrec", "plgc", "fedrap"])
def test_recording_changes_nothing(data, method):
    course, settings = train(config(method), data, threads=1), config(method).resolved()
    plain = federation(settings, find(method, settings.options), clients_of(course.parts), 1, "cpu")
    for round_ in range(4):
        plain.run_round(round_)
    for one, other in zip(plain.state.tensors(), course.simulation.state.tensors(), strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert sorted(course.rounds) == [0, 1, 2, 3, 4]


def test_vectors_are_those_of_the_clients(data):
    course = train(config("fedmf"), data, threads=1)
    users = course.rounds[0]["users"]
    assert len(users) == USERS
    assert (
        course.rounds[4]["vectors"] == course.simulation.state.personal.whole["user"][users].numpy()
    ).all()
    assert (course.rounds[0]["vectors"] == course.rounds[0]["vectors"][0]).all()  # everybody starts alike
    assert (np.diff(course.parts.train.lengths[users]) >= 0).all()


def test_the_upload_is_what_the_server_makes_its_table_of(data):
    """With a single client in the round, the mean is what that client sent."""
    simulation, recorder = simulate(data, "fedmf", 1, clients_per_round=1 / USERS)
    before = simulation.state.shared["items"].clone()
    one_round(simulation, recorder, 0)
    found = recorder.rounds[1]
    after, rows = simulation.state.shared["items"], found["upload/rows"]
    assert found["upload/client"] == simulation.choose(0)[0]
    assert (found["upload/items/before"] == before[rows].numpy()).all()
    sent = found["upload/items/before"] + found["upload/items/change"]
    assert sent == pytest.approx(after[rows].numpy(), abs=1e-12)
    untouched = np.setdiff1d(np.arange(ITEMS), rows)
    assert len(untouched) and (after[untouched] == before[untouched]).all()


def test_a_table_that_a_client_keeps_and_sends_is_known_to_the_server_as_it_is(data):
    simulation, recorder = simulate(data, "fedem", 2)
    one_round(simulation, recorder, 0)
    before = simulation.state.personal.tables["items.local"].clone()
    one_round(simulation, recorder, 1)
    found = recorder.rounds[2]
    client, rows = int(found["upload/client"]), found["upload/rows"]
    assert client == middling(split(data, "strict").train.lengths)
    assert found["upload/items/before"] == pytest.approx(before[client, rows].numpy(), abs=1e-12)


def test_merging_weights_are_those_of_the_merge(data):
    """With steps too small to see, a round is the merge alone: Q + ρ (G − Q)."""
    simulation, recorder = simulate(data, "fedem", 2)
    one_round(simulation, recorder, 0)
    still = find("fedem", {"embedding_size": 4, "local_epochs": 2, "learning_rate": 1e-12})
    simulation.method = still
    own = simulation.state.personal.tables["items.local"].clone()
    shared = simulation.state.shared["items"].clone()
    one_round(simulation, recorder, 1)
    merged = simulation.state.personal.tables["items.local"]
    found = recorder.rounds[2]
    where = np.ix_(found["merging/users"], found["merging/items"])
    rho = torch.from_numpy(found["merging/values"]).double()[..., None]
    expected = own[where] + rho * (shared[where] - own[where])
    assert torch.allclose(merged[where], expected, atol=1e-6)
    assert (shared - own).abs().max() > 0.1  # there was something to merge
    assert 0 < rho.min() < rho.max() < 1


def test_mixing_weights_are_those_of_the_tables(data):
    """G = W Q, all users being looked at."""
    simulation, recorder = simulate(data, "fedem", 1)
    one_round(simulation, recorder, 0)
    found = recorder.rounds[1]
    users, weights = found["mixing/users"], torch.from_numpy(found["mixing/values"]).double()
    assert weights.sum(1).numpy() == pytest.approx(np.ones(USERS), abs=1e-6)
    own = simulation.state.personal.tables["items.local"][users].flatten(1)
    assert torch.allclose(simulation.state.shared["items"][users].flatten(1), weights @ own, atol=1e-5)


def test_mixing_by_traces_is_one_weight_per_client(data):
    """1 − λ = tr(G) / (tr(G) + tr(Q)), the traces being sums of squares."""
    simulation, recorder = simulate(data, "plgc", 1)
    one_round(simulation, recorder, 0)
    found = recorder.rounds[1]
    own = simulation.state.personal.tables["items.local"].square().sum((1, 2))
    shared = simulation.state.shared["items"].square().sum()
    expected = (shared / (shared + own))[found["merging/users"]].numpy()
    assert found["merging/values"] == pytest.approx(np.repeat(expected[:, None], ITEMS, 1), abs=1e-5)


def test_sums_show_no_single_upload(data):
    dp = DP.parse("epsilon=8,delta=1e-3")
    assert set(train(config("fedmf", dp=dp), data, threads=1).rounds[4]) == {"users", "vectors"}


def test_noise_on_the_wire_is_in_the_upload(data):
    """Of a table that clients keep, the server has the noise of all rounds: that is not recorded."""
    wires = {"plain": None, "noisy": PaperLaplace.parse("laplace:0.5")}
    fedmf, plgc = (
        {name: train(config(method, 1, wire=wire), data, threads=1).rounds[1] for name, wire in wires.items()}
        for method in ("fedmf", "plgc")
    )
    plain, noisy = fedmf["plain"], fedmf["noisy"]
    rows = plain["upload/rows"]
    assert noisy["upload/rows"].tolist() == list(range(data.n_items)), "all rows have noise"
    assert (plain["upload/items/before"] == noisy["upload/items/before"][rows]).all()
    assert (plain["upload/items/change"] != noisy["upload/items/change"][rows]).all()
    assert "upload/client" not in plgc["noisy"]
    assert "upload/client" in plgc["plain"]


def test_a_method_of_one_round_has_no_course(data):
    with pytest.raises(ConfigError, match="solved in one round"):
        train(RunConfig(method="fedease", dataset="ratings", rounds=1), data)


def test_who_and_when():
    assert [number for number in range(1, 131) if is_full(number, 130)] == [1, 2, 5, 10, 20, 50, 100, 130]
    assert spread(np.arange(10), 4).tolist() == [0, 3, 6, 9]
    assert spread(np.arange(3), 4).tolist() == [0, 1, 2]
    sizes = np.array([5, 0, 3, 9])
    assert by_activity(sizes).tolist() == [2, 0, 3]
    assert middling(sizes) == 0
