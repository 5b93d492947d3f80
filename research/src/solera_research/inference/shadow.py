"""A shadow attack: train simulated clients with known histories, and learn an attack from them.

In the manner of Yuan et al., "Interaction-level Membership Inference Attack Against Federated Recommender
Systems" (WWW 2023). The attacker is a server that keeps to the rules. It knows the method, its settings and
its public starting values, the models it sent, how popular items are and how long histories are; nothing of
the attacked clients but what they upload. Its shadow clients have histories drawn by popularity, take part in
every round from the same model as the real ones, and keep their personal parameters as those do. A small
network then learns to tell rows with an interaction from the others: `shadow` from the upload alone,
`shadow+popularity` knowing how popular the items are as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from solera.core.method import Method
from solera.core.protection import Step
from solera.core.randomness import Purpose, generator
from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import Simulation
from solera.engine.local_training import LocalTraining
from solera_research.inference.attacker_view import Plain
from solera_research.inference.learned import Learned, features
from solera_research.inference.observe import Observed, Reseeded
from solera_research.inference.row_changes import Sent, Watchman

_GROUPS = 60  # shadow uploads, or sums of them, that a network learns from


@dataclass(frozen=True)
class Public:
    """Public knowledge of the attacker: popularity of items and lengths of histories."""

    popularity: Floats
    lengths: Ints

    @classmethod
    def of(cls, train: Ragged, n_items: int) -> Public:
        """As some clients, who are not attacked, show it."""
        return cls(np.bincount(train.values, minlength=n_items).astype(np.float64), train.lengths)

    @property
    def log_popularity(self) -> Floats:
        """Log-popularity of every item, with one added to all counts."""
        return np.log(self.popularity + 1)

    def histories(self, count: int, draw: np.random.Generator) -> Ragged:
        """Random histories: lengths as in the data, items drawn by popularity without repetition."""
        chances = (self.popularity + 1) / (self.popularity + 1).sum()
        sizes = draw.choice(self.lengths[self.lengths > 0], count)
        return Ragged.from_lists(
            [draw.choice(len(chances), size, replace=False, p=chances).tolist() for size in sizes]
        )


class Shadows:
    """Clients that the attacker simulates."""

    def __init__(
        self,
        method: Method,
        public: Public,
        count: int,
        *,
        train: LocalTraining,
        step: Step | None,
        cover: Plain,
        seed: int,
        dtype: torch.dtype,
    ) -> None:
        n_items = len(public.popularity)
        self._draw = generator(seed, Purpose.EVALUATION, *b"shadows")
        histories = public.histories(count, self._draw)
        data = ClientData(histories, histories.sorted_unique(), n_items)
        self._cover, self._watchman = cover, Watchman(cover.each)
        # The starting values are the program's and public; the samples are the clients' own.
        engine = Observed(Reseeded(train, int(self._draw.integers(2**62))), self._watchman, step)
        cpu = torch.device("cpu")
        self._simulation = Simulation(method, data, engine, seed=seed, device=cpu, dtype=dtype)
        self._popularity, self._weights = public.log_popularity, method.weights(histories.lengths, n_items)
        self._truth = np.zeros((count, n_items))
        self._truth[histories.rows, histories.values] = 1

    def follow(self, round_: int, sent: Sent, n_clients: int) -> None:
        """Train as the real clients will, from what the server is about to send them."""
        simulation = self._simulation
        self._sent, self._places = sent, self._draw.integers(n_clients, size=len(self._truth))
        simulation.restore(sent.to(self._places), simulation.state.tensors()[1])
        simulation.run_round(round_)
        self._seen = self._watchman.collect()

    def learn(self, summed: int) -> Learned:
        """From this round's uploads, or sums over some clients: the share of a sum's clients with an item."""
        able = np.array(sorted(self._seen))
        groups = [self._draw.choice(able, min(summed, len(able)), replace=False) for _ in range(_GROUPS)]
        seen = [
            self._cover.total([self._seen[client] for client in group.tolist()], self._weights[group])
            for group in groups
        ]
        truths = [self._truth[group].mean(0) for group in groups]
        unmoved = (truth[sight.rows[~sight.moved]] for sight, truth in zip(seen, truths, strict=True))
        learned = Learned(self._popularity, unmoved_is_no=not any(each.any() for each in unmoved))
        seen = [learned.candidates(sight) for sight in seen]
        sent = (self._sent.rows(self._cover.tables, self._places[group].tolist()) for group in groups)
        inputs = [features(*each, self._popularity) for each in zip(seen, sent, strict=True)]
        rows = [truth[sight.rows] for sight, truth in zip(seen, truths, strict=True)]
        learned.learn(np.concatenate(inputs), np.concatenate(rows), self._draw)
        return learned
