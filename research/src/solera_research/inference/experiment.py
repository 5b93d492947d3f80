"""Train for some rounds, and attack the uploads to find out who interacted with what.

Three things are looked at, each by every attack:

- a single upload: one client, one round;
- a client's uploads of all rounds so far, their evidence added up: a row that is missing in one of them is no
  interaction;
- the sum of some clients' uploads of a round, weighted as the method weights them, and nothing else: what
  secure aggregation shows. A sum holds an attacked client and others, drawn from the round's clients. It is
  asked twice, with the same ranking: which items are the attacked client's, who is known to be in the sum;
  and which items anybody in it has. Under central differential privacy there is one sum, over all of the
  round's clients, and nothing else to look at (`attacker_view`).

All items are candidates, and the truth is what a client trains on. The attacked clients are drawn. What the
public knows, popularity and lengths of histories, is taken from the clients that are not attacked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from solera.core.closed_form import AnyMethod, ClosedForm
from solera.core.errors import ConfigError
from solera.core.method import Method
from solera.core.randomness import Purpose, generator
from solera.core.threads import torch_threads
from solera.core.types import Floats, Ints
from solera.data.interactions import Interactions
from solera.data.sampling import ClientData
from solera.dp.laplace import LaplaceNoise
from solera.engine import BlockTraining, Simulation
from solera.engine.local_training import LocalTraining
from solera.evaluate import split
from solera.methods import find
from solera.runs.federation import protection
from solera.runs.settings import RunConfig
from solera_research.inference.attacker_view import cover
from solera_research.inference.attacks import ATTACKS
from solera_research.inference.figures import Finding, Tally
from solera_research.inference.learned import Learned
from solera_research.inference.observe import Observed
from solera_research.inference.row_changes import Mask, SeenRows, Sent, Watchman
from solera_research.inference.shadow import Public, Shadows

SUMS = (1, 2, 5, 20, 100)
CLIENTS = 100


def attack(
    config: RunConfig,
    data: Interactions,
    *,
    rounds: Sequence[int] = (),
    sums: Sequence[int] = SUMS,
    clients: int = CLIENTS,
    threads: int = 0,
    train: LocalTraining | None = None,
    on_round: Callable[[int, float | None], None] = lambda done, auc: None,
) -> list[Finding]:
    """Run every attack on the uploads of some rounds; by default the first and the last.

    `train` is the engine with whatever protects the uploads it yields; the attacker sees them after that.
    `on_round` is told the rounds done, and the AUC of the shadow attack on single uploads.
    """
    looked_at = sorted({*(rounds or (1, config.rounds))})
    if looked_at[0] < 1 or looked_at[-1] > config.rounds:
        raise ConfigError(
            f"round {looked_at[-1] if looked_at[0] > 0 else looked_at[0]} is not between 1 and "
            f"{config.rounds}",
            "raise --rounds to the last round attacked, or give other rounds with --attacked",
        )
    with torch_threads(threads):
        watch = _Watch(config, data, clients, tuple(sorted({1, *sums})), train or BlockTraining(threads))
        found: list[Finding] = []
        for round_ in range(looked_at[-1]):
            new = watch.round(round_, attacked=round_ + 1 in looked_at)
            found += new
            on_round(round_ + 1, watch.auc)
    return found


class _Watch:
    """A federation, and an observer of its uploads."""

    def __init__(
        self,
        config: RunConfig,
        data: Interactions,
        clients: int,
        sums: tuple[int, ...],
        train: LocalTraining,
    ) -> None:
        self.method = _attackable(find(config.method, config.options, config.plugins))
        self.tables = sent_tables(self.method)
        parts, self.n_items, self.sums = split(data, config.protocol), data.n_items, sums
        self.auc: float | None = None  # of the shadow attack on the last round's single uploads
        self.truth: Mask = np.zeros((data.n_users, data.n_items), dtype=np.bool_)
        self.truth[parts.train.rows, parts.train.values] = True
        self.weights = self.method.weights(parts.train.lengths, self.n_items)
        self.draw = generator(config.seed, Purpose.EVALUATION, *b"attack")
        able = np.flatnonzero(parts.train.lengths)
        if not 1 <= clients <= len(able) // 2:
            raise ConfigError(
                f"cannot attack {clients} of {len(able)} clients: the attacker's public data comes "
                "from the others",
                f"give --clients from 1 to {len(able) // 2}",
            )
        self.targets: Ints = np.sort(self.draw.choice(able, clients, replace=False))
        public = Public.of(parts.train.take(np.setdiff1d(able, self.targets)), data.n_items)
        self.popularity = public.log_popularity
        self.cover = cover(
            config.dp,
            config.noise,
            self.method.leaves,
            self.tables,
            n_items=data.n_items,
            draw=self.draw,
        )
        self.watchman = Watchman(self.cover.each)
        noise = LaplaceNoise(config.noise, config.seed, data.n_items) if config.noise else None
        dtype = torch.float64 if config.precision == "double" else torch.float32
        federation = ClientData(parts.train, parts.excluded, data.n_items)
        self.simulation = Simulation(
            self.method,
            federation,
            Observed(train, self.watchman, noise),
            seed=config.seed,
            device=torch.device("cpu"),
            dtype=dtype,
            protection=protection(config, self.method, federation),
        )
        present = len(self.simulation.choose(0))
        if self.cover.sum_alone:
            self.sums = (present,)
        elif sums[-1] > present or sums[0] < 1:
            raise ConfigError(
                f"cannot sum over {sums[-1] if sums[0] > 0 else sums[0]} clients: {present} take "
                "part in a round",
                "give other --sums",
            )
        self.shadows = Shadows(
            self.method,
            public,
            max(100, 2 * self.sums[-1]),
            train=train,
            step=noise,
            cover=self.cover,
            seed=config.seed,
            dtype=dtype,
        )
        self.so_far: dict[str, Floats] = {}  # evidence of every target's uploads, added up

    def round(self, round_: int, *, attacked: bool) -> list[Finding]:
        """Run the round and attack its uploads."""
        sent = Sent.of(self.simulation.state.tensors()[0], self.method.tailored)
        self.shadows.follow(round_, sent, len(self.truth))
        self.simulation.run_round(round_)
        seen = self.watchman.collect()
        if self.cover.sum_alone:
            return self._sum_of_all(seen, sent, round_ + 1) if attacked else []
        single, learned = Tally(), self.shadows.learn(1)
        for place, client in enumerate(self.targets.tolist()):
            if client in seen:
                found = self._evidence(seen[client], sent.rows(self.tables, [client]), learned)
                single.add(found, self.truth[client])
                for name, evidence in found.items():
                    so_far = self.so_far.setdefault(name, np.full((len(self.targets), self.n_items), np.nan))
                    so_far[place] = np.where(np.isnan(so_far[place]), 0, so_far[place]) + evidence
        self.auc = single.auc("shadow")
        if not attacked:
            return []
        findings = single.findings(round_ + 1, round_ + 1, 1)
        if round_:
            findings += self._all_so_far().findings(1, round_ + 1, 1)
        for summed in self.sums[1:]:
            findings += self._sums(seen, sent, summed).findings(round_ + 1, round_ + 1, summed)
        return findings

    def _sum_of_all(self, seen: dict[int, SeenRows], sent: Sent, round_: int) -> list[Finding]:
        """The same ranking for every client: there is one thing to look at."""
        tally, group = Tally(), sorted(seen)
        sight = self.cover.total([seen[member] for member in group], self.weights[group])
        found = self._evidence(sight, sent.rows(self.tables, group), self.shadows.learn(len(group)))
        anybody = np.any(self.truth[group], axis=0)
        for client in np.intersect1d(self.targets, group).tolist():
            tally.add(found, self.truth[client], anybody)
        self.auc = tally.auc("shadow")
        return tally.findings(round_, round_, len(group))

    def _all_so_far(self) -> Tally:
        tally = Tally()
        for place, client in enumerate(self.targets.tolist()):
            found = {name: evidence[place] for name, evidence in self.so_far.items()}
            if not np.isnan(found["touched"]).any():
                tally.add(found, self.truth[client])
        return tally

    def _sums(self, seen: dict[int, SeenRows], sent: Sent, summed: int) -> Tally:
        tally, learned = Tally(), self.shadows.learn(summed)
        everybody = np.array(sorted(seen))
        for client in np.intersect1d(self.targets, everybody).tolist():
            others = self.draw.choice(everybody[everybody != client], summed - 1, replace=False)
            group = [client, *others.tolist()]
            sight = self.cover.total([seen[member] for member in group], self.weights[group])
            found = self._evidence(sight, sent.rows(self.tables, group), learned)
            tally.add(found, self.truth[client], np.any(self.truth[group], axis=0))
        return tally

    def _evidence(self, sight: SeenRows, sent: Floats, learned: Learned) -> dict[str, Floats]:
        sight = learned.candidates(sight)
        of_rows = {name: attack(sight) for name, attack in ATTACKS.items()}
        of_rows |= {"popularity": self.popularity[sight.rows], **learned(sight, sent)}
        return {name: sight.spread(evidence, self.n_items) for name, evidence in of_rows.items()}


def sent_tables(method: Method) -> tuple[str, ...]:
    """The shared tables that clients send changes of rows for."""
    return tuple(sorted({leaf.sent_as for leaf in method.leaves if leaf.per_item and leaf.sent_as}))


def _attackable(method: AnyMethod) -> Method:
    if isinstance(method, ClosedForm) or not sent_tables(method):
        raise ConfigError(
            f"{method.name!r} sends no changes of item rows, which these attacks need",
            "use a method that trains a shared item table, e.g. fedmf",
        )
    return method
