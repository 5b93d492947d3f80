"""Solera models inside LensKit and RecTools, and one model under the evaluations of all three."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import polars as pl
import pytest
import torch

import solera
from solera.core.errors import ConfigError
from solera.data.synthetic import World

pd = pytest.importorskip("pandas")
lenskit = pytest.importorskip("lenskit")
rectools = pytest.importorskip("rectools")

from lenskit.batch import recommend  # noqa: E402
from lenskit.data import ItemListCollection, RecQuery, from_interactions_df  # noqa: E402
from lenskit.metrics import NDCG, Hit, Recall, RecipRank  # noqa: E402
from lenskit.metrics.ranking import LogRankWeight  # noqa: E402
from lenskit.pipeline import topn_pipeline  # noqa: E402
from lenskit.testing import BasicComponentTests, ScorerTests  # noqa: E402
from rectools import Columns  # noqa: E402
from rectools import metrics as theirs  # noqa: E402
from rectools.dataset import Dataset  # noqa: E402

from solera.adapters.lenskit import SoleraConfig, SoleraScorer  # noqa: E402
from solera.adapters.rectools import SoleraModel  # noqa: E402

K = 10


@pytest.fixture(scope="module")
def table():
    """Interactions without repetition, in no order."""
    rows = pd.concat([batch.to_pandas() for batch in World(200, 160, 2000, seed=3).batches()])
    return rows.assign(user=rows["user"] * 7 + 1000, item=rows["item"] * 3 + 50).sample(
        frac=1, random_state=0
    )


@pytest.fixture(scope="module")
def halves(table):
    """The last item of every user, and all others."""
    ordered = table.sort_values(["user", "time"])
    last = ~ordered.duplicated("user", keep="last")
    return ordered[~last], ordered[last]


def of_lenskit(rows):
    renamed = rows.rename(columns={"user": "user_id", "item": "item_id", "time": "timestamp"})
    return from_interactions_df(renamed.assign(timestamp=pd.to_datetime(renamed["timestamp"], unit="s")))


def of_rectools(rows):
    renamed = rows.rename(columns={"user": "user_id", "item": "item_id", "time": "datetime"})
    dated = renamed.assign(datetime=pd.to_datetime(renamed["datetime"], unit="s"), weight=1)
    return Dataset.construct(dated)


METHODS = [
    ("fedease", {"reg": 20.0, "precision": "double"}),
    ("fedslist", {"precision": "double"}),
    ("fedmf", {"rounds": 3, "precision": "double", "min_interactions": 1}),
]


@pytest.mark.parametrize(("method", "parameters"), METHODS)
def test_three_libraries_measure_one_model_alike(method, parameters, table, halves):
    """Hit rate, NDCG, reciprocal rank and recall of the last item, among all items that the user lacks."""
    before, last = halves
    data = solera.load(table, min_interactions=1)
    known = data.frame().with_row_index()
    rows = known.group_by("user", maintain_order=True).tail(1)["index"].to_numpy()
    earlier = np.ones(len(data), np.bool_)
    earlier[rows] = False
    model = solera.estimator(method)(**parameters).fit(data.select(earlier))
    measured = solera.evaluate(model.recommender.scorer(), data)
    ours = measured.row(by_predicate=(pl.col("items") == "test") & (pl.col("ranking") == "full"), named=True)

    pipeline = topn_pipeline(SoleraScorer(method=method, parameters=parameters), n=K)
    pipeline.train(of_lenskit(before))
    users = last["user"].tolist()
    lists = recommend(pipeline, users, n=K, n_jobs=1)
    truth = ItemListCollection.from_df(last.rename(columns={"user": "user_id", "item": "item_id"}), "user_id")
    offset = LogRankWeight(offset=1)  # the default gives the first two places one weight
    found = {}
    for name, metric in {
        "hr@10": Hit(K),
        "ndcg@10": NDCG(K, weight=offset),
        "mrr@10": RecipRank(K),
        "recall@10": Recall(K),
    }.items():
        found[name] = np.mean([metric.measure_list(lists.lookup(u), truth.lookup(u)) for u in users])
    for name, value in found.items():
        assert value == pytest.approx(ours[name], abs=1e-12), name

    dataset = of_rectools(before)
    fitted = SoleraModel(method, **parameters).fit(dataset)
    lists = fitted.recommend(users, dataset, k=K, filter_viewed=True)
    tested = last.rename(columns={"user": Columns.User, "item": Columns.Item})
    by_rectools = theirs.calc_metrics(
        {
            "hr@10": theirs.HitRate(K),
            "ndcg@10": theirs.NDCG(K, divide_by_achievable=True),  # the default wants ten relevant items
            "mrr@10": theirs.MRR(K),
            "recall@10": theirs.Recall(K),
        },
        lists,
        tested,
    )
    for name, value in by_rectools.items():
        assert value == pytest.approx(ours[name], abs=1e-12), name
    assert 0.05 < ours["hr@10"] < 0.95


class TestScorerOfLensKit(BasicComponentTests, ScorerTests):  # type: ignore[misc]
    """LensKit's own conformance tests of components."""

    component = SoleraScorer
    can_score = "known"
    configs: ClassVar[tuple[dict[str, object], ...]] = ({}, {"method": "fedmf", "parameters": {"rounds": 1}})

    @pytest.fixture(scope="class")
    def ml_ds(self, table):
        return of_lenskit(table)

    @pytest.fixture
    def ml_ratings(self, table):
        return table.rename(columns={"user": "user_id", "item": "item_id", "time": "timestamp"}).assign(
            rating=4
        )

    @pytest.fixture
    def ml_100k(self):
        pytest.skip("figures are compared above")

    @pytest.fixture
    def rng(self):
        return np.random.default_rng(0)


def test_a_history_of_a_query_is_read_in_its_order(table):
    scorer = SoleraScorer(SoleraConfig(method="fedslist"))
    data = of_lenskit(table)
    scorer.train(data)
    ids = data.items.ids()
    everything = lenskit.data.ItemList(item_ids=ids)

    def scores(*history):
        query = RecQuery(history_items=lenskit.data.ItemList(item_ids=list(history)))
        return scorer(query, everything).scores()

    one, other = scores(ids[3], ids[40]), scores(ids[40], ids[3])
    assert np.isfinite(one).all()
    assert not np.allclose(one, other)
    wanted = scorer.model_.recommend_for([ids[3], ids[40]], 1)["item"][0]
    one[[3, 40]] = -np.inf
    assert str(ids[one.argmax()]) == wanted


@pytest.mark.parametrize("viewed", [True, False])
def test_rectools_gets_what_solera_recommends(table, viewed):
    dataset = of_rectools(table)
    model = SoleraModel("fedslist").fit(dataset)
    users = table["user"].unique()[:20].tolist()
    allowed = sorted(table["item"].unique())[::2]
    found = model.recommend(users, dataset, k=5, filter_viewed=viewed, items_to_recommend=allowed)
    assert set(found[Columns.Item]) <= set(allowed)
    pairs = found.merge(table, left_on=[Columns.User, Columns.Item], right_on=["user", "item"])
    assert (len(pairs) == 0) == viewed
    if viewed:
        wanted = model.model.recommend(users, 5, only=allowed)
        assert found[Columns.Item].astype(str).tolist() == wanted["item"].to_list()


def test_rectools_may_give_newer_histories_and_new_users(table):
    first = of_rectools(table[table["user"] != table["user"].iloc[0]])
    model, whole = SoleraModel("fedease").fit(first), of_rectools(table)
    user = table["user"].iloc[0]
    found = model.recommend([user], whole, k=5, filter_viewed=True)
    history = table[table["user"] == user].sort_values("time")["item"]
    assert found[Columns.Item].astype(str).tolist() == model.model.recommend_for(history, 5)["item"].to_list()
    with pytest.raises(ConfigError, match="was not fitted to 1 of the users"):
        SoleraModel("fedmf", rounds=1).fit(first).recommend([user], whole, k=5, filter_viewed=True)


def test_rectools_asks_for_similar_items_and_for_the_config(table):
    dataset = of_rectools(table)
    model = SoleraModel("fedease", reg=50.0).fit(dataset)
    items = table["item"].unique()[:3].tolist()
    found = model.recommend_to_items(items, dataset, k=4)
    wanted = model.model.similar(items, 4)
    assert found[Columns.Item].astype(str).tolist() == wanted["item"].to_list()
    again = SoleraModel.from_config(model.get_config())
    assert again.get_params() == model.get_params()
    again.fit(dataset)
    weights = (each.model._federation.state.shared["weights"] for each in (model, again))
    assert torch.equal(*weights)
