"""Rounds with coded uploads and downloads: engines, resuming, what is served, and what is refused."""

from __future__ import annotations

import numpy as np
import polars
import pytest
import torch

import solera
from solera.coding import check_upload, download_coding, upload_coding
from solera.core.errors import ConfigError
from solera.core.protection import Chain
from solera.core.upload import Upload
from solera.dp.mechanism import norms
from solera.engine import BlockTraining, Simulation, train_one_by_one
from solera.methods import build, find
from solera.runs.federation import federation
from solera.runs.presets import run_settings
from solera.testing.toy import CPU, N_ITEMS, Watched, difference, identical, state, toy_data

SMALL = {"embedding_size": 4, "clients_per_round": 0.5}


def simulation(method="fedmf", upload=None, download=None, train=None, *, masked=False, steps=()):
    built = build(method, SMALL)
    chain = Chain(steps, masked=masked, coding=upload_coding(upload) if upload else None)
    return Simulation(
        built,
        toy_data(),
        train or BlockTraining(1),
        seed=5,
        device=CPU,
        dtype=torch.float64,
        protection=chain,
        download=download_coding(download, built, 5) if download else None,
    )


def after(made: Simulation, rounds: range) -> Simulation:
    for round_ in rounds:
        made.run_round(round_)
    return made


@pytest.mark.parametrize("method", ["fedmf", "pfedrec", "fedhist", "fedncf"])
@pytest.mark.parametrize(
    ("upload", "download"),
    [("int8", "int8"), ("top-k:0.5", None), ("top-k:0.5", "int8")],
)
def test_engines_agree_and_a_resumed_run_is_the_same(method, upload, download):
    whole = after(simulation(method, upload, download), range(4))
    one_by_one = after(simulation(method, upload, download, train_one_by_one), range(4))
    assert difference(state(whole), state(one_by_one)) < 1e-9
    half = after(simulation(method, upload, download), range(2))
    saved = [{name: value.clone() for name, value in part.items()} for part in half.state.tensors()]
    resumed = simulation(method, upload, download)
    resumed.restore(*saved)
    assert identical(state(after(resumed, range(2, 4))), state(whole))
    everybody = np.arange(20)
    assert torch.equal(resumed.scores(everybody), whole.scores(everybody))


def test_clients_start_from_what_they_received_and_the_server_keeps_its_own():
    """In a round, the server's table moves by the mean of the changes that clients made to their copies."""
    watched = Watched(BlockTraining(1))
    coded = simulation(download="int8", train=watched)
    initial = coded.state.shared["items"].clone()
    assert torch.equal(coded.received["items"], initial)  # it follows from the seed
    coded.run_round(0)
    watched.results.clear()
    before, received = coded.state.shared["items"].clone(), coded.received["items"].clone()
    assert 0 < float((received - before).abs().max()) < float((before - initial).abs().max()) / 254 * 1.001
    coded.run_round(1)
    total = torch.zeros_like(before)
    clients = 0
    for result in watched.results:
        start = received[result.upload.rows]
        torch.testing.assert_close(result.params["items"] - start, result.upload.changes["items"])
        total.index_add_(0, result.upload.rows, result.upload.changes["items"])
        clients += len(result.clients)
    torch.testing.assert_close(coded.state.shared["items"], before + total / clients)


def test_a_device_serves_from_what_it_downloads():
    coded = after(simulation(download="int8"), range(2))
    user = coded.state.personal.whole["user"][:3]
    expected = user @ coded.received["items"].T
    torch.testing.assert_close(coded.scores(np.arange(3)), expected)
    assert not torch.allclose(expected, user @ coded.state.shared["items"].T)


def test_a_whole_run_is_evaluated_as_it_is_served_and_opens_again(tmp_path):
    pairs = np.stack([np.repeat(np.arange(30), 12), np.random.default_rng(0).integers(0, 40, 360)])
    table = polars.DataFrame({"user": pairs[0], "item": pairs[1]})
    run = solera.train(
        "fedhist",
        table,
        out=tmp_path / "run",
        upload="int8",
        download="int8",
        threads=1,
        rounds=2,
        embedding_size=4,
    )
    assert (run.result.upload, run.result.download) == ("int8", "int8")
    opened = solera.open_run(tmp_path / "run")
    first = opened.data.user_map.id(0)
    assert opened.recommend(first, 3) == run.recommend(first, 3)


def test_bytes_are_those_of_the_coded_form():
    """Four numbers per row: int8 takes 4 + 4 + 4 bytes instead of 4 + 16."""
    plain, coded = (simulation(upload=upload).run_round(0).bytes_up for upload in (None, "int8"))
    assert coded / plain == (4 + 4 + 4) / (4 + 16)
    assert simulation(download="int8").run_round(0).bytes_down == N_ITEMS * (4 + 4)


def test_clipping_bounds_what_the_server_decodes():
    for upload in ("int8", "top-k:0.5"):
        config = run_settings("fedmf", "toy", options=SMALL, dp="noise=1,delta=1e-5,clip=0.01", upload=upload)
        made = federation(config, find("fedmf", config.options, []), toy_data(), 1, "cpu")
        begun = made.protection.begin(0, made.method.leaves, made.state.memory, made.state.personal.residuals)
        for result in made.train_clients(0, np.arange(20), begun):
            assert isinstance(result.upload, Upload)
            assert float(norms(result.upload, made.method.leaves).max()) <= 0.01 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"upload": "int8", "secure_aggregation": True}, "a scale for every row"),
        ({"upload": "top-k:0.1", "secure_aggregation": True}, "sends every row"),
        ({"upload": "int8", "dp": "noise=1,delta=1e-5,mode=local"}, "noise to every number"),
        ({"upload": "int8", "noise": "laplace:0.5"}, "cannot be coded"),
        ({"upload": "int4"}, "not a valid --upload"),
        ({"upload": "int8:3"}, "not a valid --upload"),
        ({"upload": "top-k:2"}, "share between 0 and 1"),
        ({"download": "int8+pq:8"}, "was removed in version 0.3"),
        ({"upload": "sketch:0.25"}, "was removed in version 0.3"),
        ({"download": "zip"}, "not a valid --download"),
    ],
)
def test_what_is_refused_says_why(settings, why):
    with pytest.raises(ConfigError, match=why):
        run_settings("fedmf", "toy", **settings)


@pytest.mark.parametrize(
    ("method", "settings", "why"),
    [
        ("fedease", {"upload": "int8"}, "sums over a history"),
        ("fedease", {"download": "int8"}, "download nothing"),
        ("local", {"upload": "int8"}, "send nothing"),
        ("fedem", {"download": "int8"}, "a table of its own"),
    ],
)
def test_methods_that_cannot_be_coded_say_why(method, settings, why):
    with pytest.raises(ConfigError, match=why):
        run_settings(method, "toy", **settings)


def test_codings_go_with_noise_and_coded_tables_with_masks():
    run_settings("fedmf", "toy", download="int8", secure_aggregation=True)
    run_settings("fedmf", "toy", upload="top-k:0.5", download="int8", dp="noise=1,delta=1e-5")
    with pytest.raises(ConfigError, match="mixes the clients' tables"):
        check_upload("int8", find("fedem", {}, []), masked=False, noise=None)
