"""A Solera model as a component of LensKit: it trains on its data sets and scores items in its pipelines.

pipeline = topn_pipeline(SoleraScorer(method="fedease", parameters={"reg": 200}))
pipeline.train(dataset)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery
from lenskit.pipeline import Component
from lenskit.training import Trainable, TrainingOptions
from pydantic import BaseModel
from torch import Tensor

from solera.core.types import Ints
from solera.data import datasets
from solera.estimators import Model, estimator


class SoleraConfig(BaseModel):
    """A method or centralized baseline, and its parameters."""

    method: str = "fedease"
    parameters: dict[str, Any] = {}


class SoleraScorer(Component[ItemList], Trainable):  # type: ignore[misc]
    """Scores items with a Solera model. Items that it does not know get no score.

    A user of the training data is scored by what the model knows of them. Anybody else is scored by the
    history of the query, in its order; without one, no item gets a score.
    """

    config: SoleraConfig
    model_: Model

    def train(self, data: Dataset, options: TrainingOptions | None = None) -> None:
        """Fit the model to all interactions."""
        if not hasattr(self, "model_") or options is None or options.retrain:
            made = estimator(self.config.method)(**self.config.parameters)
            self.model_ = made.fit(datasets.load(data, min_interactions=1))

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """The items with their scores."""
        places = self._places(items)
        found = np.full(len(items), np.nan, dtype=np.float64)
        scores = self._scores(RecQuery.create(query))
        if scores is not None:
            found[places >= 0] = scores[places[places >= 0]].double().numpy()
        return ItemList(items, scores=found)

    def _scores(self, query: RecQuery) -> Tensor | None:
        recommender, users = self.model_.recommender, self.model_.data.user_map
        user = str(query.user_id)
        if user in users:
            return recommender.scorer()(np.array([users.index(user)]))[0]
        known = np.zeros(0, np.int64) if query.history_items is None else self._places(query.history_items)
        known = known[known >= 0]
        return recommender.newcomer_scores(known) if len(known) else None

    def _places(self, items: ItemList) -> Ints:
        """The numbers that the model has for items, -1 for those it does not know."""
        known = self.model_.data.item_map
        ids = [str(each) for each in items.ids().tolist()] if len(items) else []
        return np.array([known.index(each) if each in known else -1 for each in ids], dtype=np.int64)
