"""Demonstration of the papers' leak: ranks of held-out items in users' lists, round by round.

The same method is trained under `paper` and under `strict`. A user's items are put into four groups:
the held-out test item; items the user never met that have not been drawn as the user's negative so far;
those that have; and the training items. Under `paper` the held-out item is never drawn, and moves with
the second group. The counter, which learns nothing, finds it too.

`found_by_counting` predicts its figures. A draw hits a given one of the C items that may be drawn with
probability 1 / C. A user with n training items makes m n draws in each of R rounds, for m negatives per
positive. So all of them miss the item with probability

    p = (1 − 1 / C)^(R m n),    C = n_items − (items that are never drawn)

The held-out item is never drawn. It shares the first place with the K of the N candidates that were missed
too, K ~ B(N, p). Equal scores share the middle of their places, so it is at place 1 + K / 2. HR@10 is the
probability of K ≤ 18, and NDCG@10 the mean of 1 / log₂(2 + K / 2) over these K, both averaged over users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import comb, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from solera.baselines import Baseline, OnEpoch, Popularity
from solera.baselines.counter import Counter, CounterConfig
from solera.core.errors import ConfigError
from solera.core.threads import torch_threads
from solera.core.types import Floats, Ints
from solera.data.interactions import Interactions, Split, history
from solera.data.ragged import Ragged
from solera.data.sampling import sample
from solera.engine import Simulation
from solera.evaluate import Evaluation, Evaluator, Score, split
from solera.methods import build
from solera.runs.federation import clients_of, federation
from solera.runs.settings import RunConfig
from solera_research.papers import papers

PROTOCOLS = ("paper", "strict")
METRICS = ("hr@10", "ndcg@10")
DATASETS = ("ml-100k", "ml-1m", "filmtrust", "lastfm-2k", "douban-book", "amazon-video")
CELLS = 4_000_000  # users × items looked at after every round; more users than that are represented by some

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Places:
    """Mean place of every group in the users' lists: 100 is the top, 0 the bottom; None if it is empty."""

    held_out: float | None
    never_drawn: float | None
    drawn: float | None
    train: float | None


def show_leak(
    name: str,
    data: Interactions,
    options: Mapping[str, Any],
    *,
    rounds: int,
    seed: int = 0,
    threads: int = 1,
    on_round: Callable[[int, str, Places], None] = lambda *_: None,
) -> dict[str, Any]:
    """Train under both protocols; everything is plain JSON. `places` begin before the first round.

    `on_round` is told the rounds done under both protocols together. HR@10 is of the last round: no round
    is chosen, and no figure here is for comparing methods.
    """
    method_name, *plugins = name.split("+")
    method = build(method_name, options, plugins)
    if rounds < 1:
        raise ConfigError(f"{rounds} rounds are too few to compare the protocols", "give --rounds 1 or more")
    found: dict[str, Any] = {
        "method": method.name,
        "dataset": data.name,
        "options": method.config.model_dump(mode="json"),
        "rounds": rounds,
        "seed": seed,
        "control_rounds": CounterConfig().rounds,
    }
    with torch_threads(threads):
        for before, protocol in enumerate(PROTOCOLS):
            parts = split(data, protocol)
            config = RunConfig.model_validate({"method": method_name, "dataset": data.name, "seed": seed})
            simulation = federation(config, method, clients_of(parts), threads, "cpu")
            assert isinstance(simulation, Simulation)  # `build` makes nothing else
            watch = Watch(simulation, parts)
            places = [watch.places()]
            for round_ in range(rounds):
                simulation.run_round(round_)
                places.append(watch.after(round_))
                on_round(before * rounds + round_ + 1, protocol, places[-1])
            evaluator = Evaluator(parts, seed)
            found["watched_users"] = len(watch.users)
            found[protocol] = {
                "leaky": parts.leaky,
                "places": [asdict(each) for each in places],
                "hr@10": _hits(evaluator.test(simulation.serve(history(parts, "test")))),
                "control": _hits(evaluator.test(_counter(parts, seed))),
            }
    return found


def times_drawn(simulation: Simulation, users: Ints, round_: int) -> Ints:
    """How often every item is a negative of the given users in one round: [users, items].

    Negatives are a function of seed, round and client, so they need not be written down while training.
    """
    data = simulation.data
    rows = np.flatnonzero(np.isin(users, simulation.choose(round_)))
    per_positive = simulation.method.context(round_, data.n_items).negatives
    negatives = sample(data, users[rows], per_positive, simulation.seed, round_).negatives
    cells = rows[negatives.rows] * data.n_items + negatives.values
    return np.bincount(cells, minlength=len(users) * data.n_items).reshape(len(users), data.n_items)


def count_leak(data: Interactions, seed: int = 0, on_epoch: OnEpoch | None = None) -> dict[str, Any]:
    """The counter beside its law and every published figure on the data set; everything is plain JSON.

    All figures are against 99 negatives, under `paper` but for the last one. That with ties by popularity was
    thought of after the first figures of the plain counter were known.
    """
    parts = split(data, "paper")
    evaluator, popular = Evaluator(parts, seed), Popularity.fit(parts)
    counter = Counter.fit(parts, CounterConfig(), seed, on_epoch)
    ties = Counter(counter.drawn, popular.counts / (popular.counts.max() + 1))

    def figures(model: Baseline, ranking: Evaluator = evaluator) -> dict[str, float]:
        found = ranking.test(lambda users: model.scores(users, parts.train)).sampled99
        return {metric: found[metric] for metric in METRICS}

    found = {
        "dataset": data.name,
        "users": data.n_users,
        "items": data.n_items,
        "rounds": CounterConfig().rounds,
        "seed": seed,
        "counter": figures(counter),
        "law": found_by_counting(parts, CounterConfig()),
        "counter, ties by popularity": figures(ties),
        "popularity": figures(popular),
    }
    del counter, ties
    honest = split(data, "strict")
    found["counter, strict"] = figures(
        Counter.fit(honest, CounterConfig(), seed, on_epoch), Evaluator(honest, seed)
    )
    return found | {"published": list(published(data.name))}


def published(dataset: str) -> Iterator[dict[str, Any]]:
    """Every pair of HR@10 and NDCG@10 against 99 negatives that the five papers print for a data set."""
    for paper in papers().values():
        for table in paper.table:
            if table.metrics[:2] != METRICS or table.ranking != "sampled99" or table.ratings:
                continue
            for row in table.rows:
                for column, figures in zip(table.columns, table.published(row), strict=False):
                    name = paper.dataset(column)
                    if name.name != dataset or name.min_interactions is not None or not all(figures[:2]):
                        continue
                    hr, ndcg = (figure.value for figure in figures[:2] if figure)
                    yield {"paper": paper.name, "table": table.id, "row": row, "hr@10": hr, "ndcg@10": ndcg}


class Watch:
    """Looks at the scores of some users after every round, and at what was drawn for them so far."""

    def __init__(self, simulation: Simulation, parts: Split) -> None:
        self._simulation = simulation
        evaluated = np.flatnonzero(parts.test.lengths)
        most = max(1, CELLS // parts.data.n_items)
        picked = np.linspace(0, len(evaluated) - 1, min(most, len(evaluated))).astype(np.int64)
        self.users: Ints = evaluated[picked]
        self._train, self._test, validation = (
            _mask(part.take(self.users), parts.data.n_items)
            for part in (parts.train, parts.test, parts.validation)
        )
        self._unmet = ~(self._train | self._test | validation)
        self.drawn: Mask = np.zeros_like(self._unmet)

    def after(self, round_: int) -> Places:
        """Mean places of the groups after the round."""
        self.drawn |= times_drawn(self._simulation, self.users, round_) > 0
        return self.places()

    def places(self) -> Places:
        """Current mean places of the groups."""
        places = places_in_list(self._simulation.scores(self.users))
        return Places(
            held_out=_mean(places, self._test),
            never_drawn=_mean(places, self._unmet & ~self.drawn),
            drawn=_mean(places, self._unmet & self.drawn),
            train=_mean(places, self._train),
        )


def places_in_list(scores: Tensor) -> Floats:
    """Of every item in its row: 100 for the highest score, 0 for the lowest; equal scores share a place."""
    values = scores.numpy()
    last = values.shape[1] - 1
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    begins = np.ones(values.shape, dtype=np.bool_)  # here, and ends there, a run of equal scores
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.roll(begins, -1, axis=1)
    at = np.arange(last + 1, dtype=np.int32)
    first = np.maximum.accumulate(np.where(begins, at, 0), axis=1)
    final = np.minimum.accumulate(np.where(ends, at, last)[:, ::-1], axis=1)[:, ::-1]
    places = np.empty(values.shape)
    np.put_along_axis(places, order, (first + final) * (50.0 / max(1, last)), axis=1)
    return places


def _mean(places: Floats, group: Mask) -> float | None:
    """The mean over users of their means, of those users who have anything in the group."""
    sizes = group.sum(1)
    some = sizes > 0
    if not some.any():
        return None
    return float(((places * group).sum(1)[some] / sizes[some]).mean())


def _mask(items: Ragged, n_items: int) -> Mask:
    mask = np.zeros((len(items), n_items), dtype=np.bool_)
    mask[items.rows, items.values] = True
    return mask


def _counter(parts: Split, seed: int) -> Score:
    model = Counter.fit(parts, CounterConfig(), seed)
    return lambda users: model.scores(users, parts.train)


def _hits(evaluation: Evaluation) -> dict[str, float]:
    return {"sampled99": evaluation.sampled99["hr@10"], "full": evaluation.full["hr@10"]}


_AT = 10  # the cutoff of the formula


def found_by_counting(split: Split, config: CounterConfig, candidates: int = 99) -> dict[str, float]:
    """HR@10 and NDCG@10 of the counter against so many candidates, by the formula above.

    Only for a protocol that never draws the held-out items.
    """
    users = np.flatnonzero(split.test.lengths)
    n = split.train.lengths[users]
    free = split.data.n_items - split.excluded.lengths[users]
    left_out: Floats = (1 - 1 / free) ** (config.rounds * config.negatives * n)
    found = {"hr@10": 0.0, "ndcg@10": 0.0}
    for tied in range(2 * _AT - 1):
        chance = comb(candidates, tied) * left_out**tied * (1 - left_out) ** (candidates - tied)
        found["hr@10"] += float(chance.mean())
        found["ndcg@10"] += float(chance.mean()) / log2(2 + tied / 2)
    return found
