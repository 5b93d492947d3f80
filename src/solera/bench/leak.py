"""Demonstration of the papers' leak: ranks of held-out items in users' lists, round by round.

The same method is trained under `paper` and under `strict`. A user's items are put into four groups:
the held-out test item; items the user never met that have not been drawn as the user's negative so far;
those that have; and the training items. Under `paper` the held-out item is never drawn, and moves with
the second group. A control that learns nothing, and only counts how often each item was drawn, finds it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from solera.core.arrays import Floats, Ints
from solera.core.errors import ConfigError
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.sampling import sample
from solera.data.split import Split, history
from solera.engine import Simulation
from solera.engine.process import torch_threads
from solera.evaluate import Evaluation, Evaluator, Score, split
from solera.methods import build
from solera.runs.config import RunConfig
from solera.runs.federation import clients_of, federation

PROTOCOLS = ("paper", "strict")
CONTROL_ROUNDS = 100  # as many as the papers train
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
        "control_rounds": CONTROL_ROUNDS,
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
                "control": _hits(evaluator.test(control(simulation, CONTROL_ROUNDS))),
            }
    return found


def control(simulation: Simulation, rounds: int) -> Score:
    """A scorer that has learned nothing but what was drawn: the more often, the lower the score."""

    def score(users: Ints) -> Tensor:
        counts = sum(times_drawn(simulation, users, round_) for round_ in range(rounds))
        return -torch.from_numpy(counts).float()

    return score


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


def _hits(evaluation: Evaluation) -> dict[str, float]:
    return {"sampled99": evaluation.sampled99["hr@10"], "full": evaluation.full["hr@10"]}
