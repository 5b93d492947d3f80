"""A training whose rounds are recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from solera.core.errors import ConfigError
from solera.core.threads import torch_threads
from solera.data.interactions import Interactions, Split, history
from solera.engine import Simulation
from solera.evaluate import Evaluator, Score, split
from solera.methods import find
from solera.runs import RunConfig
from solera.runs.federation import clients_of, federation
from solera.study.statistics import Interval, interval
from solera_research.figures.recording import Arrays, Recorder, by_activity, middling, spread
from solera_research.figures.tables import (
    SERVED,
    THEIR_OWN,
    Table,
    item_tables,
    owners,
    scores_with,
    singular_values,
)

LOOKED_AT = 32  # users whose tables are looked at, eight of each quarter
METRICS = {"full": "ndcg@10", "sampled99": "hr@10"}


@dataclass(frozen=True)
class Course:
    """A federation after its last round, and what was recorded of its rounds."""

    config: RunConfig
    parts: Split
    simulation: Simulation
    rounds: Mapping[int, Arrays]

    @property
    def title(self) -> str:
        """The method and its data set."""
        name = f"{self.config.full_method} on {self.parts.data.name}"
        return f"{name} (LEAKY)" if self.parts.leaky else name

    @cached_property
    def middle(self) -> int:
        """The user of median activity."""
        return middling(self.parts.train.lengths)

    @cached_property
    def tables(self) -> Mapping[str, Table]:
        """The item tables of that user, by kind."""
        return item_tables(self.simulation, self.middle)

    @cached_property
    def spectra(self) -> Mapping[str, tuple[list[int], list[Table]]]:
        """By kind of table: how many training items users have, and the singular values of their tables."""
        found: dict[str, tuple[list[int], list[Table]]] = {}
        for user in spread(by_activity(self.parts.train.lengths), LOOKED_AT):
            for kind, table in item_tables(self.simulation, int(user)).items():
                sizes, values = found.setdefault(kind, ([], []))
                sizes.append(int(self.parts.train.lengths[user]))
                values.append(singular_values(table))
        return {kind: each for kind, each in found.items() if all(values[0] > 0 for values in each[1])}

    @property
    def served(self) -> list[Table]:
        """Singular values of the tables that users are served with, the least active user's first."""
        return self.spectra.get(SERVED, ([], []))[1]

    def by_owner(self) -> dict[str, dict[str, Interval]]:
        """Test figures by whose item table serves users, and by ranking."""
        evaluator, found = Evaluator(self.parts, self.config.seed), {}
        for owner in owners(self.simulation):
            score: Score = partial(scores_with, self.simulation, owner)
            if owner == THEIR_OWN:
                score = self.simulation.serve(history(self.parts, "test"))
            test = evaluator.test(score)
            found[owner] = {
                "full": interval(test.full_ranking.per_user[METRICS["full"]]),
                "sampled99": interval(test.sampled99_ranking.per_user[METRICS["sampled99"]]),
            }
        return found


def train(
    config: RunConfig,
    data: Interactions,
    *,
    threads: int = 0,
    on_round: Callable[[int, float], None] = lambda done, loss: None,
) -> Course:
    """Train all rounds, and record them."""
    method, parts = find(config.method, config.options, config.plugins), split(data, config.protocol)
    config = config.resolved()
    simulation = federation(config, method, clients_of(parts), threads, "cpu")
    if not isinstance(simulation, Simulation):
        raise ConfigError(f"{method.name!r} is solved in one round", "give a method of many rounds")
    # Noise on the wire accumulates in a table that the server only knows as the sum of what was sent.
    adds_up = config.noise and any(leaf.feeds for leaf in simulation.method.leaves)
    recorder = Recorder(simulation, config.rounds, uploads=not (config.dp or adds_up))
    with torch_threads(threads):
        for round_ in range(config.rounds):
            recorder.begin(round_)
            done = simulation.run_round(round_)
            recorder.end(round_)
            on_round(round_ + 1, done.loss)
    return Course(config, parts, simulation, recorder.rounds)
