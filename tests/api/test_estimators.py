"""Models with fit, recommend, update and save."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import solera
from solera.baselines import BASELINES
from solera.core.errors import ConfigError, DataError, RunError
from solera.estimators import NAMES, estimator, loaded
from solera.methods import METHODS, ONE_ROUND

DAY = 86_400


def plays(users: int = 40, items: int = 25, seed: int = 0) -> pl.DataFrame:
    """A month of plays: users like items near to a taste of their own, some play a thing twice."""
    random = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        count = int(random.integers(1, 14))
        liked = (random.normal(user % 5 * 5, 3, count).round().astype(int)) % items
        days = random.permutation(30)[:count]
        rows += [
            (f"u{user}", f"i{item}", 1_700_000_000 + DAY * int(d))
            for item, d in zip(liked, days, strict=True)
        ]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def test_a_data_set_is_looked_for_in_the_given_folder(tmp_path):
    with pytest.raises(DataError, match="nowhere does not exist"):
        loaded("ml-100k", None, tmp_path / "nowhere")


@pytest.fixture
def table() -> pl.DataFrame:
    return plays()


@pytest.fixture
def halves(table) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All but the last days, and these: with new users, new items, and repeated pairs."""
    last = 1_700_000_000 + 24 * DAY
    more = pl.DataFrame(
        [("new", "i1", last + DAY), ("new", "fresh", last + 2 * DAY), ("u1", "fresh", last + DAY)],
        schema=["user", "item", "time"],
        orient="row",
    )
    before = table.filter(pl.col("time") < last)
    return before, pl.concat([table.filter(pl.col("time") >= last), more, before.head(3)])


def weights(model) -> torch.Tensor:
    """The weights of a closed form [channels, items, items], its items in the order of their ids."""
    matrix = model._federation.state.shared["weights"].double()
    n, ids = model.data.n_items, model.data.item_map.ids
    order = torch.from_numpy(np.argsort(ids))
    return matrix.reshape(-1, n, n)[:, order][:, :, order]


def test_there_is_a_class_for_every_method_and_baseline():
    assert sorted(NAMES.values()) == sorted([*METHODS, *ONE_ROUND, *(BASELINES.keys() - {"counter"})])
    assert solera.FedEASE is solera.FedEASE
    assert set(NAMES) <= set(dir(solera))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("FedEASE", {"reg": 20.0}),
        ("FedSLIST", {}),
        ("FedSLIST", {"decay_days": 3.0, "decays": (0.9,)}),
        ("FedEASE", {"neighbours": 6}),
    ],
)
def test_an_update_of_a_closed_form_is_a_fit_on_everything(name, options, halves):
    before, after = halves
    kind = getattr(solera, name)
    updated = kind(precision="double", **options).fit(before).update(after)
    known = solera.load(before, min_interactions=1)
    everything = known.with_rows_of(solera.load(after, min_interactions=1))
    again = kind(precision="double", **options).fit(everything)
    for tensor, same in zip(*(m._federation.state.shared.values() for m in (updated, again)), strict=True):
        assert torch.allclose(tensor.double(), same.double(), atol=1e-9, rtol=0)
    if not options.get("neighbours"):  # which keeps the first of equally good neighbours
        whole = kind(precision="double", **options).fit(pl.concat([before, after]))
        assert torch.allclose(weights(updated), weights(whole), atol=1e-9, rtol=0)
        lacks_one = after.filter(~((pl.col("user") == "u1") & (pl.col("item") == "fresh")))
        other = kind(precision="double", **options).fit(before).update(lacks_one)
        assert not torch.allclose(weights(other), weights(whole), atol=1e-9, rtol=0)


def test_update_after_update_after_loading_is_exact_too(halves, tmp_path):
    before, after = halves
    model = solera.FedSLIST(precision="double").fit(before)
    for number, rows in enumerate(after.iter_slices(5)):
        model.update(rows).save(tmp_path / f"m{number}")
        model = solera.load_model(tmp_path / f"m{number}")
    whole = solera.FedSLIST(precision="double").fit(pl.concat([before, after]))
    assert torch.allclose(weights(model), weights(whole), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", ["FedMF", "PFedRec", "FedRAP", "FedEM", "FedHist", "FedFast"])
def test_an_update_of_a_trained_method_goes_on_from_where_it_is(name, halves):
    before, after = halves
    model = getattr(solera, name)(rounds=2, embedding_size=4).fit(before)
    shared, personal = model._federation.state.tensors()
    held = {key: value.clone() for key, value in (shared | personal).items() if "/" not in key}
    model.update(after, rounds=0)
    shared, personal = model._federation.state.tensors()
    for key, value in (shared | personal).items():
        if key in held:
            assert torch.equal(value[tuple(slice(size) for size in held[key].shape)], held[key])
    model.update(after, rounds=1)
    assert model._rounds_done == 3
    found = model.recommend(["new", "u1"], 3)
    assert set(found["user"]) == {"new", "u1"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_saved_model_recommends_the_same(name, table, tmp_path):
    if name == "IALS":
        pytest.importorskip("implicit")
    settings = {"rounds": 2} if name in {n for n, key in NAMES.items() if key in METHODS} else {}
    small = {"epochs": 1} if "epochs" in getattr(solera, name).defaults else {}
    model = getattr(solera, name)(**settings, **small).fit(table)
    model.save(tmp_path / "model")
    again = solera.load_model(tmp_path / "model")
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.recommend(None, 4).equals(model.recommend(None, 4))


def test_everybody_gets_recommendations(table, tmp_path, caplog):
    few = table.group_by("user").len().filter(pl.col("len") < 5)["user"]
    assert len(few)
    distinct = table.unique(["user", "item"]).group_by("user").len().filter(pl.col("len") < 5)
    model = solera.FedMF(rounds=1).fit(table)
    assert model.write_recommendations(tmp_path / "all.parquet", k=5) == len(distinct)
    written = pl.read_parquet(tmp_path / "all.parquet")
    assert set(written["user"]) == set(table["user"])
    assert not len(written.join(table, on=["user", "item"]))
    counts = table.unique(["user", "item"]).group_by("item").len()
    best = written.filter(pl.col("user") == few[0]).join(counts, on="item")
    own = table.filter(pl.col("user") == few[0])["item"]
    wanted = counts.filter(~pl.col("item").is_in(own.implode()))["len"].sort(descending=True).head(5)
    assert best.sort("rank")["len"].to_list() == wanted.to_list()
    assert solera.FedEASE().fit(table).write_recommendations(tmp_path / "closed.parquet", k=5) == 0


def test_unknown_items_of_a_history_are_skipped_and_counted(table, caplog):
    model = solera.FedEASE().fit(table)
    with caplog.at_level(logging.WARNING):
        found = model.recommend_for(["nothing", "i5", "i6"], 4)
    assert "1 of 3 items of the history are unknown" in caplog.text
    assert found.equals(model.recommend_for(["i5", "i6"], 4))
    popular = table.unique(["user", "item"])["item"].value_counts()["count"].max()
    assert model.recommend_for(["nothing"], 1)["score"].to_list() == [popular]


def test_one_id_or_several_of_any_kind(table):
    numbers = table.with_columns(pl.col("user", "item").str.slice(1).cast(pl.Int64))
    model = solera.FedEASE().fit(numbers)
    one, several = np.int64(3), np.array([3, 4])
    assert model.recommend(one).equals(model.recommend("3"))
    assert model.recommend(several)["user"].unique(maintain_order=True).to_list() == ["3", "4"]
    assert model.similar(one)["to"].unique().to_list() == ["3"]
    assert model.recommend_for("12", 3).equals(model.recommend_for(["12"], 3))
    assert "4" not in model.recommend("3", 25, without=np.int64(4))["item"]


def test_parameters_are_those_of_scikit_learn(table):
    model = solera.FedEASE(reg=7.0)
    assert model.get_params()["reg"] == 7.0
    assert model.set_params(reg=9.0, seed=3) is model
    assert model.get_params() | {"reg": 500.0, "seed": 0} == solera.FedEASE(reg=500.0).get_params()
    base = pytest.importorskip("sklearn.base")
    twin = base.clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    assert twin._data is None


@pytest.mark.parametrize("name", ["FedMF", "FedEASE", "EASE"])
def test_a_model_is_evaluated_on_items_it_was_not_fitted_to(name, table):
    data = solera.load(table)
    options: dict[str, Any] = {"rounds": 2, "learning_rate": 0.05} if name == "FedMF" else {"reg": 7.0}
    model = getattr(solera, name)(seed=3, **options)
    found = solera.evaluate(model, data, cutoffs=(3,))
    if name == "EASE":
        wanted = solera.baseline("ease", data, seed=3, cutoffs=(3,), **options).metrics
    else:
        wanted = solera.train(name.lower(), data, seed=3, cutoffs=(3,), **options).metrics
    assert found.equals(wanted)
    with pytest.raises(ConfigError, match="not fitted"):
        model.recommend()
    whole = getattr(solera, name)(seed=3, **options).fit(data)
    leaking = solera.evaluate(whole.recommender.scorer(), data, cutoffs=(3,))
    if name != "FedMF":
        assert leaking["ndcg@3"][0] != pytest.approx(found["ndcg@3"][0])


def test_errors_have_a_next_step(table, tmp_path):
    with pytest.raises(ConfigError, match="no parameter 'learning_rat'") as wrong:
        solera.FedMF(learning_rat=0.1)
    assert "learning_rate" in wrong.value.hint
    with pytest.raises(ConfigError, match="not fitted"):
        solera.FedMF().recommend()
    with pytest.raises(RunError, match="no model"):
        solera.load_model(tmp_path)
    model = solera.FedEASE().fit(table)
    folder = model.save(tmp_path / "model")
    with pytest.raises(RunError, match="exists"):
        model.save(folder)
    assert solera.load_model(folder).recommend("u1").equals(model.recommend("u1"))
    (folder / "shared.safetensors").write_bytes((folder / "shared.safetensors").read_bytes()[:100])
    with pytest.raises(RunError, match="damaged"):
        solera.load_model(folder)
    with pytest.raises(ConfigError, match="fit again"):
        solera.FedEASE(secure_aggregation=True).fit(table).update(table.head(2))
    assert estimator("fedmf") is solera.FedMF
