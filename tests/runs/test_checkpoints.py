"""Checkpoints write the rows of clients that changed, and a resumed run continues from all of them."""

from __future__ import annotations

import threading

import pytest
import torch

from made_ratings import write_ratings
from solera.data.datasets import load
from solera.engine.row_store import RowStore
from solera.runs import StoppedError, train
from solera.runs.folder import read_rows, write_rows
from solera.runs.presets import run_settings


def put(store: RowStore, clients: list[int], value: float) -> None:
    items = torch.arange(3).repeat(len(clients))
    counts = torch.full((len(clients),), 3)
    store.put(torch.tensor(clients), items, counts, torch.full((len(items), 2), value))


def test_only_new_segments_are_written(tmp_path):
    store = RowStore(60, torch.device("cpu"))
    put(store, list(range(50)), 1.0)
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    write_rows(one, "last-", {"items": store}, None)
    put(store, [3, 55], 2.0)
    two.mkdir()
    write_rows(two, "last-", {"items": store}, one)
    files = {path.name: path.stat() for path in (two / "rows").iterdir()}
    old = {path.name for path in (one / "rows").iterdir()}
    assert len(files) == 2
    assert [status.st_nlink for name, status in files.items() if name in old] == [2]
    assert read_rows(two, "last-").keys() == {"items/clients", "items/counts", "items/items", "items/values"}
    for name, value in store.tensors().items():
        assert torch.equal(read_rows(two, "last-")[f"items/{name}"], value)
    assert (read_rows(one, "last-")["items/values"] == 1).all()


def test_both_states_share_their_segments(tmp_path):
    store = RowStore(10, torch.device("cpu"))
    put(store, list(range(9)), 1.0)
    best = store.copy()
    put(store, [2], 5.0)
    write_rows(tmp_path, "last-", {"items": store}, None)
    write_rows(tmp_path, "best-", {"items": best}, None)
    assert len(list((tmp_path / "rows").iterdir())) == 2
    assert (read_rows(tmp_path, "best-")["items/values"] == 1).all()
    assert (read_rows(tmp_path, "last-")["items/values"] == 5).sum() == 6


@pytest.mark.parametrize("method", ["pfedrec", "fedmf", "fedrap"])
def test_a_run_stopped_many_times_ends_with_the_same_figures(tmp_path, method):
    path = write_ratings(tmp_path / "r.csv", users=40, items=30, each=8, seed=3)
    data = load(str(path))
    options = {"embedding_size": 4, "clients_per_round": 0.3}
    config = run_settings(method, str(path), options=options, rounds=6)
    whole = train(config, data, threads=1)
    stop = threading.Event()
    stop.set()
    for _ in range(5):
        with pytest.raises(StoppedError):
            train(config, data, out=tmp_path / "run", resume=True, threads=1, stop=stop)
    last = train(config, data, out=tmp_path / "run", resume=True, threads=1)
    assert last.test == whole.test
    assert last.history["loss"].to_list() == whole.history["loss"].to_list()
