"""One client more or less changes a sum by at most the clip: real uploads of every fit method."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from solera.core.closed_form import ClosedForm
from solera.core.errors import ConfigError
from solera.core.leaf import Home, Leaf
from solera.core.method import Method
from solera.core.upload import Totals, Upload
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.dp.mechanism import Clip, Gaussian, norms
from solera.dp.settings import check_private
from solera.engine.block import BlockTraining
from solera.engine.local_training import Task
from solera.engine.simulation import Simulation
from solera.methods import ONE_ROUND, build, find, names

CPU = torch.device("cpu")
N_ITEMS, N_CLIENTS = 60, 10
SMALL = {"embedding_size": 4, "batch_size": 24, "local_epochs": 2, "negatives": 2, "learning_rate": 0.05}
OWN: dict[str, dict[str, Any]] = {"fedsasrec": {"local_epochs": 1, "layers": 1}}


def fit(name: str) -> bool:
    try:
        check_private(find(name))
    except ConfigError:
        return False
    return True


MANY_ROUNDS = [name for name in names() if name not in ONE_ROUND and fit(name)]


def test_which_methods_may() -> None:
    """A method that is added appears in one of the two lists, and is looked at."""
    assert MANY_ROUNDS == [
        "colr",
        "fedcia",
        "fedmf",
        "fedncf",
        "fedrap",
        "fedrecon",
        "fedsasrec",
        "pfedclr",
        "pfedrec",
        "plgc",
    ]
    assert all(fit(name) for name in ONE_ROUND)


def options_of(name: str) -> dict[str, Any]:
    fields = type(find(name).config).model_fields
    return {key: v for key, v in SMALL.items() if key in fields} | OWN.get(name, {})


@cache
def data() -> ClientData:
    draw = np.random.default_rng(0)
    train = Ragged.from_lists(
        [draw.permutation(N_ITEMS)[:n].tolist() for n in draw.integers(3, 21, N_CLIENTS)]
    )
    return ClientData(train, train.sorted_unique(), N_ITEMS)


def total(method: Method, uploads: list[Upload]) -> torch.Tensor:
    """All that the server would add up, as one vector."""
    totals = Totals(method.leaves, N_ITEMS, CPU)
    for upload in uploads:
        totals.add(upload)
    return torch.cat([totals.leaf(name).change.flatten() for name in totals.names])


@pytest.mark.parametrize("name", MANY_ROUNDS)
def test_a_client_more_or_less_moves_the_sum_by_at_most_the_clip(name: str) -> None:
    """10 clients left out in turn, in 2 rounds, under 8 clips: 160 pairs of neighbours each."""
    method = build(name, options_of(name))
    simulation = Simulation(method, data(), BlockTraining(1), seed=0, device=CPU, dtype=torch.float32)
    largest = 0.0
    for round_ in range(2):
        task = Task(method, simulation.data, simulation.state, method.context(round_, N_ITEMS), 0)
        results = list(BlockTraining(1)(task, np.arange(N_CLIENTS)))
        single = [r.upload.of_client(c, method.leaves) for r in results for c in range(len(r.clients))]
        assert len(single) == N_CLIENTS
        for bound in np.geomspace(1e-3, 30, 8):
            clip = Clip(float(bound))
            each = torch.stack([total(method, [clip.upload(one, method.leaves)[0]]) for one in single])
            together = total(method, [clip.upload(r.upload, method.leaves)[0] for r in results])
            assert torch.allclose(together, each.sum(0), rtol=1e-12, atol=1e-12)
            for client in range(N_CLIENTS):
                moved = float((together - (each.sum(0) - each[client])).norm())
                assert moved <= bound * (1 + 1e-9)
                largest = max(largest, moved / bound)
        simulation.run_round(round_)
    assert largest == pytest.approx(1.0, abs=1e-6)  # the bound is met: were it lower, this would fail


@pytest.mark.parametrize("name", [name for name in MANY_ROUNDS if "-" not in name])  # options do not matter
def test_the_others_trained_again_without_a_client_send_what_they_sent(name: str) -> None:
    """So neighbouring federations differ by one client's upload, and by nothing else."""
    method = build(name, options_of(name))
    simulation = Simulation(method, data(), BlockTraining(1), seed=0, device=CPU, dtype=torch.float32)
    simulation.run_round(0)
    clip = Clip(0.1)

    def summed(clients: np.ndarray) -> torch.Tensor:
        task = Task(method, simulation.data, simulation.state, method.context(1, N_ITEMS), 0)
        uploads = [result.upload for result in BlockTraining(1)(task, clients)]
        return total(method, [clip.upload(upload, method.leaves)[0] for upload in uploads])

    everybody = np.arange(N_CLIENTS)
    whole = summed(everybody)
    moved = [float((whole - summed(np.delete(everybody, left_out))).norm()) for left_out in everybody]
    assert max(moved) <= clip.norm * (1 + 1e-5)  # in single precision, padded to other shapes
    assert min(moved) > 0


@pytest.mark.parametrize("name", list(ONE_ROUND))
def test_a_contribution_is_no_longer_than_the_clip(name: str) -> None:
    """300 histories, some of whose items repeat; the total of neighbours differs by the contribution."""
    method = find(name)
    assert isinstance(method, ClosedForm)
    draw = np.random.default_rng(1)
    for _ in range(300):
        history = draw.integers(0, 30, draw.integers(1, 25))
        clip = float(10 ** draw.uniform(-2, 3))
        before = method.update.of(history)
        after = Clip(clip).contribution(before)
        dense = 0.0
        for key, block in after.blocks.items():
            r, m, c, _ = block.shape
            total = np.zeros((r, 30, c, 30))
            total[np.ix_(np.arange(r), after.items, np.arange(c), after.items)] += block
            dense += float((total**2).sum())
            square = before.blocks[key].reshape(r * m, c * m)
            if method.update.sums[key].symmetric:
                assert np.allclose(square, square.T)
        assert math.sqrt(dense) <= clip * (1 + 1e-9)


LEAVES = (
    Leaf("items", (3,), Home.SHARED, per_item=True, upload=True),
    Leaf("layer", (2, 2), Home.SHARED, upload=True),
)


def made(draw: np.random.Generator, scale: float) -> Upload:
    counts = draw.integers(0, 6, 4)
    rows = np.concatenate([draw.permutation(9)[:n] for n in counts]).astype(np.int64)
    changes = {
        "items": torch.from_numpy(draw.normal(0, scale, (len(rows), 3))),
        "layer": torch.from_numpy(draw.normal(0, scale, (4, 2, 2))),
    }
    return Upload(torch.from_numpy(rows), torch.from_numpy(counts), changes)


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_the_whole_upload_is_clipped_and_none_that_is_short_is_changed(
    seed: int, scale: float, bound: float
) -> None:
    upload = made(np.random.default_rng(seed), scale)
    clipped, lengths = Clip(bound).upload(upload, LEAVES)
    start = 0
    for place, count in enumerate(upload.row_counts.tolist()):
        mine = slice(start, start + count)
        start += count
        parts = [upload.changes["items"][mine].flatten(), upload.changes["layer"][place].flatten()]
        length = float(torch.cat(parts).norm())
        assert float(lengths[place]) == pytest.approx(length, rel=1e-12)
        factor = min(1.0, bound / length)
        assert torch.allclose(clipped.changes["layer"][place], upload.changes["layer"][place] * factor)
        assert torch.allclose(clipped.changes["items"][mine], upload.changes["items"][mine] * factor)
        if length <= bound:
            assert torch.equal(clipped.changes["items"][mine], upload.changes["items"][mine])
    assert float(norms(clipped, LEAVES).max()) <= bound * (1 + 1e-12)


def test_by_hand() -> None:
    """Rows (3, 0, 0) and (0, 4, 0) and a layer of 12 in one place: 13 long, so half of it is left at 6.5."""
    changes = {
        "items": torch.tensor([[3.0, 0, 0], [0, 4.0, 0]]),
        "layer": torch.tensor([[[12.0, 0], [0, 0]]]),
    }
    upload = Upload(torch.tensor([5, 1]), torch.tensor([2]), changes)
    clipped, lengths = Clip(6.5).upload(upload, LEAVES)
    assert lengths.tolist() == [13.0]
    assert clipped.changes["items"].tolist() == [[1.5, 0, 0], [0, 2.0, 0]]
    assert clipped.changes["layer"].flatten().tolist() == [6.0, 0, 0, 0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_as_nothing(bad: float) -> None:
    upload = made(np.random.default_rng(3), 1.0)
    upload.changes["layer"][2, 0, 1] = bad
    clipped, _ = Clip(1.0).upload(upload, LEAVES)
    assert all(bool(change.isfinite().all()) for change in clipped.changes.values())
    assert not clipped.changes["layer"][2].any()
    assert clipped.changes["layer"][1].any()


def test_a_row_that_is_sent_twice_is_refused() -> None:
    """Its two halves would be added up to more than their length says."""
    changes = {"items": torch.ones(2, 3), "layer": torch.zeros(1, 2, 2)}
    with pytest.raises(ConfigError, match="twice"):
        norms(Upload(torch.tensor([4, 4]), torch.tensor([2]), changes), LEAVES)


def test_there_is_no_noise_without_a_clip() -> None:
    with pytest.raises(TypeError):
        Gaussian(multiplier=1.0)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="without a clip"):
        Gaussian(None, 1.0)  # type: ignore[arg-type]
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError):
            Clip(wrong)
        with pytest.raises(ConfigError):
            Gaussian(Clip(1.0), wrong)
