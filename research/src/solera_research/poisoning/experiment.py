"""Train with some malicious clients, and measure what the other users are recommended.

The malicious clients are added to the others, who are the same whatever is tried: their number is a share of
theirs. Targets are drawn from the least popular quarter of the items.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from solera.core.closed_form import AnyMethod, ClosedForm
from solera.core.errors import ConfigError, closest
from solera.core.frozen import Frozen
from solera.core.method import Method
from solera.core.randomness import Purpose, generator
from solera.core.threads import torch_threads
from solera.core.types import Ints
from solera.data.interactions import Interactions, Split, history
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation
from solera.engine.local_training import LocalTraining
from solera.evaluate import Evaluator, split
from solera.methods import find
from solera.runs.settings import RunConfig
from solera_research.inference.shadow import Public
from solera_research.poisoning.attacks import ATTACKS, Poisoned
from solera_research.poisoning.crowd import Crowd

NONE = "none"


class AttackPlan(Frozen):
    """What malicious clients are up to. `trust_weights` lets the server believe any weight they claim."""

    attack: str = "promotion"
    malicious: float = 0.01
    targets: int = 5
    boost: float = 1.0
    trust_weights: bool = False


class Outcome(Frozen):
    """Result after the last round.

    `exposure` is the share of users, of those who do not know a target, in whose top 10 it is: the mean over
    the targets. `ndcg` is NDCG@10 of the test items in full ranking.
    """

    malicious_clients: int
    exposure: float
    ndcg: float


def poison(
    config: RunConfig,
    data: Interactions,
    plot: AttackPlan,
    *,
    threads: int = 0,
    on_round: Callable[[int, float], None] = lambda done, loss: None,
) -> Outcome:
    """Train for all rounds with malicious clients, and measure their effect."""
    method = _attackable(find(config.method, config.options, config.plugins))
    if plot.attack not in (NONE, *ATTACKS):
        raise ConfigError(f"unknown attack {plot.attack!r}", closest(plot.attack, [NONE, *ATTACKS]))
    parts = split(data, config.protocol)
    count = math.ceil(plot.malicious * data.n_users) if plot.attack != NONE else 0
    with torch_threads(threads):
        targets = least_popular(parts.train, data.n_items, plot.targets, config.seed)
        train = BlockTraining(threads)
        simulation = _federation(config, method, parts, train, _Malice(plot, count, targets))
        for round_ in range(config.rounds):
            on_round(round_ + 1, simulation.run_round(round_).loss)
        test = Evaluator(parts, config.seed).test(simulation.serve(history(parts, "test")))
        exposed = exposure(simulation, parts, targets)
    return Outcome(malicious_clients=count, exposure=exposed, ndcg=test.full["ndcg@10"])


class _Malice(NamedTuple):
    plot: AttackPlan
    clients: int
    targets: Ints


def _federation(
    config: RunConfig,
    method: Method,
    parts: Split,
    train: LocalTraining,
    malice: _Malice,
) -> Simulation:
    plot, count, targets = malice
    n_items, n_users = parts.data.n_items, parts.data.n_users
    dtype = torch.float64 if config.precision == "double" else torch.float32
    clients, engine = ClientData(parts.train, parts.excluded, n_items), train
    if count:
        public = Public.of(parts.train, n_items)
        made_up = public.histories(count, generator(config.seed, Purpose.EVALUATION, *b"malicious"))
        clients = ClientData(
            _below(parts.train, made_up), _below(parts.excluded, made_up.sorted_unique()), n_items
        )
        crowd = Crowd(method, public, train, seed=config.seed, dtype=dtype)
        engine = Poisoned(train, crowd, plot.attack, n_users, torch.from_numpy(targets), plot.boost)
    cpu = torch.device("cpu")
    simulation = Simulation(method, clients, engine, seed=config.seed, device=cpu, dtype=dtype)
    simulation.heaviest = math.inf if plot.trust_weights else None
    return simulation


def _below(one: Ragged, other: Ragged) -> Ragged:
    return Ragged.of_lengths(
        np.concatenate([one.lengths, other.lengths]), np.concatenate([one.values, other.values])
    )


def least_popular(train: Ragged, n_items: int, count: int, seed: int) -> Ints:
    """Some of the least popular quarter of the items, ascending."""
    order = np.argsort(np.bincount(train.values, minlength=n_items), kind="stable")
    quarter = order[: max(1, n_items // 4)]
    if not 1 <= count <= len(quarter):
        raise ConfigError(
            f"cannot choose {count} targets among {len(quarter)} unpopular items",
            f"give --targets from 1 to {len(quarter)}",
        )
    return np.sort(generator(seed, Purpose.EVALUATION, *b"targets").choice(quarter, count, replace=False))


def exposure(simulation: Simulation, parts: Split, targets: Ints, top: int = 10) -> float:
    """Share of users with a target in their top list, among users new to it; mean over targets."""
    known = history(parts, "test").concat(parts.test)
    seen, free = np.zeros(len(targets)), np.zeros(len(targets))
    for users in np.array_split(np.arange(parts.data.n_users), max(1, parts.data.n_users // 200)):
        scores = simulation.serve(history(parts, "test"))(users).double().numpy()
        mine = known.take(users)
        met = np.zeros(scores.shape, dtype=np.bool_)
        met[mine.rows, mine.values] = True
        scores = np.where(met, -np.inf, scores)
        for place, target in enumerate(targets.tolist()):
            own = scores[:, [target]]
            rank = 1 + (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2
            free[place] += (~met[:, target]).sum()
            seen[place] += ((rank <= top) & ~met[:, target]).sum()
    return float((seen / np.maximum(free, 1)).mean())


def _attackable(method: AnyMethod) -> Method:
    """Check that clients of the method send changes of a table shared by all."""
    if isinstance(method, ClosedForm) or method.aggregate.target or method.scorer.learns_from != "items":
        why = "its clients train no shared item table by steps, or get one each, or are known by history"
        raise ConfigError(f"{method.name!r} cannot be poisoned here: {why}", "use e.g. fedmf or pfedrec")
    if not any(leaf.per_item and leaf.sent_as for leaf in method.leaves):
        raise ConfigError(f"{method.name!r} sends no changes of item rows", "use e.g. fedmf or pfedrec")
    return method
