"""Models in numpy score as those in torch do, and read the same options."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.device.bundle import Item
from solera.device.model import Model
from solera.device.models.linear import WholeMatrix
from solera.device.models.opened import OPTIONS, open_model
from solera.device.models.options import PLUGINS
from solera.device.models.served import FROM_HISTORY, LINEAR
from solera.device.publish import export, extend
from solera.methods import PLUGINS as ALL_PLUGINS
from solera.methods import find, names
from solera.runs import RunConfig, train
from solera.runs.blend import blend_runs

USERS, ITEMS, HISTORIES, LISTED, CLOSE = 120, 250, 1_000, 100, 1e-5
NETWORK = {"embedding_size": 12, "heads": 3, "max_length": 20, "clients_per_round": 1.0, "warmup": 1}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedease": ("fedease", {"reg": 20.0, "recency": 0.9}),
    "fedslist": ("fedslist", {"decays": "0,0.6,1"}),
    "fedslist-neighbours": ("fedslist", {"neighbours": 20}),
    "fedhist": ("fedhist", {"embedding_size": 7, "decays": "0.5,1"}),
    "sasrec": ("fedsasrec", NETWORK),
    "ligr": ("fedsasrec", NETWORK | {"block": "ligr"}),
    "hstu": ("fedsasrec", NETWORK | {"block": "hstu", "layers": 3}),
}


@pytest.fixture(scope="module")
def films():
    draw = np.random.default_rng(3)
    common = draw.dirichlet(np.full(ITEMS, 0.5))
    weights = (common + 1e-3) / (common + 1e-3).sum()
    lists = [draw.choice(ITEMS, 12 + user % 30, replace=False, p=weights) for user in range(USERS)]
    users = [f"u{user}" for user, items in enumerate(lists) for _ in items]
    return Interactions.from_columns("films", users, [str(i) for items in lists for i in items])


@pytest.fixture(scope="module")
def runs(films, tmp_path_factory):
    """A finished run of a model, made once."""
    made = {}

    def run(name: str):
        if name not in made:
            method, options = MODELS[name]
            config = RunConfig(
                method=method, dataset="films", options=options, rounds=1 if find(method).one_round else 4
            )
            made[name] = train(config, films, out=tmp_path_factory.mktemp("models") / name, threads=1)
        return made[name]

    return run


@pytest.fixture
def bundle(runs, films, keys, tmp_path):
    """The bundle of a run, with all of its weights."""
    return lambda run: export(run.path, tmp_path / "a.bundle", Path(f"{keys}.key"), data=films, whole=True)


@pytest.fixture(scope="module")
def histories(films) -> Ragged:
    draw = np.random.default_rng(5)
    lengths = draw.integers(1, 60, HISTORIES)
    return Ragged.from_lists([draw.choice(films.n_items, n, replace=False).tolist() for n in lengths])


def agree(model, wanted, histories: Ragged) -> float:
    """The largest difference of scores, after a check of the first items."""
    worst = 0.0
    for row, expected in enumerate(wanted.double().numpy()):
        history = histories.row(row)
        found, size = model.scores(history), np.abs(expected).max()
        worst = max(worst, np.abs(found - expected).max() / size)
        mine = [item for item, _ in model.best(history, history, LISTED)]
        expected[history] = -np.inf
        theirs = np.argsort(-expected, kind="stable")[:LISTED]
        # Another item may stand here only if torch gives both the same score in single precision.
        assert np.abs(expected[mine] - expected[theirs]).max() <= CLOSE * size
        assert np.mean(mine == theirs) > 0.95
    return worst


@pytest.mark.parametrize("name", MODELS)
def test_numpy_scores_as_torch_does(name, runs, bundle, histories):
    wanted = runs(name)._simulation.serve(histories)(np.arange(HISTORIES))
    assert agree(open_model(bundle(runs(name))), wanted, histories) < CLOSE


def test_a_blend_scores_as_torch_does(runs, bundle, histories, tmp_path):
    run = blend_runs(runs("fedslist"), runs("ligr"), out=tmp_path / "both")
    assert agree(open_model(bundle(run)), run.serve(histories)(np.arange(HISTORIES)), histories) < CLOSE


def test_the_comparison_sees_another_model(runs, bundle, histories):
    """The control: of the same method with another recency."""
    run = runs("fedease")
    model = open_model(bundle(run))
    assert isinstance(model, WholeMatrix)
    model.memory = model.memory._replace(decays=(0.9001,))
    with pytest.raises(AssertionError):
        assert agree(model, run._simulation.serve(histories)(np.arange(HISTORIES)), histories) < CLOSE


def test_options_are_those_of_the_methods():
    """All of them are known, with the same defaults; so are methods and plug-ins."""
    assert sorted(OPTIONS) == list(FROM_HISTORY) == [n for n in names() if find(n).serves_from_history]
    linear = [n for n in FROM_HISTORY if find(n).one_round or find(n).scorer.learns_from == "sequences"]
    assert list(LINEAR) == linear
    for method, options in OPTIONS.items():
        plugins = PLUGINS if method == "fedhist" else ()
        given = find(method).config.model_dump(mode="json")
        of_plugins = {name for plugin in plugins for name in ALL_PLUGINS[plugin].config.model_fields}
        assert options.of_training | {each.name for each in fields(options)} == set(given) | of_plugins
        assert options() == options.read(given)


@pytest.mark.parametrize("name", ["fedease", "fedslist-neighbours", "fedhist", "sasrec"])
def test_new_items_are_as_at_the_start(name, runs, bundle, keys, tmp_path):
    """A federation's tensors may be of an older catalogue."""
    first = bundle(runs(name))
    second = extend(first, [Item("new", "New", None)], tmp_path / "b", Path(f"{keys}.key"))
    shared = {leaf: value.numpy() for leaf, value in Model(first).shared.items()}
    history = np.array([7, 30, 2, 100])
    wanted = Model(second, shared).scores(history).double().numpy()
    found = open_model(second, shared).scores(history)
    assert len(found) == first.manifest.items + 1
    assert found == pytest.approx(wanted, abs=CLOSE * np.abs(wanted).max())
