"""A Solera model as a model of RecTools: fitted to its data sets, measured by its metrics.

model = SoleraModel("fedease", reg=200).fit(dataset)
model.recommend(users, dataset, k=10, filter_viewed=True)
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from pydantic import Field
from rectools.dataset import Dataset
from rectools.models.base import ModelBase, ModelConfig

from solera.core.errors import ConfigError
from solera.core.types import Floats, Ints
from solera.data import datasets
from solera.data.ragged import Ragged
from solera.estimators import Model, estimator

_USERS_AT_A_TIME = 256


class SoleraModelConfig(ModelConfig):  # type: ignore[misc]
    """A method or centralized baseline, and its parameters."""

    method: str = "fedease"
    parameters: dict[str, Any] = Field(default_factory=dict)


class SoleraModel(ModelBase[SoleraModelConfig]):  # type: ignore[misc]
    """Recommends with a Solera model.

    Histories are those of the data set that `recommend` is given, if the method scores histories. A method
    with parameters of its own for each user knows the users and histories that it was fitted to.
    """

    config_class = SoleraModelConfig

    def __init__(self, method: str = "fedease", verbose: int = 0, **parameters: Any) -> None:
        super().__init__(verbose=verbose)
        self.method, self.parameters = method, parameters
        self.model: Model = estimator(method)(**parameters)

    def _get_config(self) -> SoleraModelConfig:
        return SoleraModelConfig(
            cls=type(self), verbose=self.verbose, method=self.method, parameters=self.parameters
        )

    @classmethod
    def _from_config(cls, config: SoleraModelConfig) -> Self:
        return cls(config.method, config.verbose, **config.parameters)

    def _fit(self, dataset: Dataset) -> None:
        self.model.fit(datasets.load(dataset, min_interactions=1))

    def _recommend_u2i(
        self,
        user_ids: Ints,
        dataset: Dataset,
        k: int,
        filter_viewed: bool,
        sorted_item_ids_to_recommend: Ints | None,
    ) -> tuple[Ints, Ints, Floats]:
        numbers: Ints
        recommender, places = self.model.recommender, _places(dataset)
        # The data set's number of every item of the model, -1 for those it lacks.
        theirs = np.array([places.get(id_, -1) for id_ in self.model.data.item_map.ids.tolist()], np.int64)
        allowed = theirs >= 0
        if sorted_item_ids_to_recommend is not None:
            allowed &= np.isin(theirs, sorted_item_ids_to_recommend)
        known = self._histories(user_ids, dataset)
        if recommender.reads_histories:
            score, numbers = recommender.scorer(known), np.arange(len(user_ids), dtype=np.int64)
        else:
            score, numbers = recommender.scorer(), self._numbers(user_ids, dataset)
        users, items, found = [], [], []
        for begin in range(0, len(numbers), _USERS_AT_A_TIME):
            some = slice(begin, begin + _USERS_AT_A_TIME)
            scores = score(numbers[some]).clone()
            scores[:, torch.from_numpy(~allowed)] = -torch.inf
            if filter_viewed:
                viewed = known.take(np.arange(len(numbers))[some])
                scores[torch.from_numpy(viewed.rows), torch.from_numpy(viewed.values)] = -torch.inf
            best = torch.topk(scores, min(k, scores.shape[1]))
            there = torch.isfinite(best.values)
            users.append(user_ids[some].repeat(there.sum(1).numpy()))
            items.append(theirs[best.indices[there].numpy()])
            found.append(best.values[there].double().numpy())
        return np.concatenate(users), np.concatenate(items), np.concatenate(found)

    def _recommend_i2i(
        self, target_ids: Ints, dataset: Dataset, k: int, sorted_item_ids_to_recommend: Ints | None
    ) -> tuple[Ints, Ints, Floats]:
        places = _places(dataset)
        asked = dataset.item_id_map.convert_to_external(target_ids)
        similar = self.model.similar(asked.tolist(), self.model.data.n_items)
        numbers = {str(id_): number for id_, number in zip(asked, target_ids.tolist(), strict=True)}
        targets = np.array([numbers[each] for each in similar["to"].to_list()])
        items = np.array([places.get(each, -1) for each in similar["item"].to_list()])
        wanted = items >= 0
        if sorted_item_ids_to_recommend is not None:
            wanted &= np.isin(items, sorted_item_ids_to_recommend)
        best = np.concatenate([np.flatnonzero(wanted & (targets == each))[:k] for each in target_ids])
        return targets[best], items[best], similar["score"].to_numpy()[best]

    def _histories(self, user_ids: Ints, dataset: Dataset) -> Ragged:
        """What the data set knows of these users, oldest first, in the model's numbers of items."""
        data = datasets.load(dataset, min_interactions=1).distinct()
        ids = [str(each) for each in dataset.user_id_map.convert_to_external(user_ids)]
        known = self.model.data.item_map
        mine = np.array([known.index(i) if i in known else -1 for i in data.item_map.ids.tolist()], np.int64)
        found = data.timed_by_user.take(np.array([data.user_map.index(each, "user") for each in ids]))
        values, days = mine[found.values], found.days
        kept = values >= 0
        return Ragged.from_pairs(
            found.rows[kept], values[kept], len(ids), None if days is None else days[kept]
        )

    def _numbers(self, user_ids: Ints, dataset: Dataset) -> Ints:
        """The model's numbers of users."""
        users = self.model.data.user_map
        ids = [str(each) for each in dataset.user_id_map.convert_to_external(user_ids)]
        unknown = [each for each in ids if each not in users]
        if unknown:
            raise ConfigError(
                f"{self.method} was not fitted to {len(unknown)} of the users, such as {unknown[0]!r}",
                "fit to the data set that has them",
            )
        return np.array([users.index(each) for each in ids], dtype=np.int64)


def _places(dataset: Dataset) -> dict[str, int]:
    """The data set's numbers of items by their ids."""
    return {str(id_): number for number, id_ in enumerate(dataset.item_id_map.external_ids)}
