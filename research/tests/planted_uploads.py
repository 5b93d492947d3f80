"""Uploads that give everything away, and uploads that give nothing away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from solera.core.types import Ints
from solera.core.upload import Upload
from solera.engine import BlockTraining
from solera.engine.local_training import ClientResult, Task
from solera_research.inference.row_changes import SeenRows

CLIENTS, ITEMS, WIDTH, POSITIVES, NEGATIVES = 60, 200, 8, 15, 45


def clients(seed: int = 0) -> Iterator[tuple[Ints, np.ndarray, np.random.Generator]]:
    """Of every client the rows it touches, and which of them are interactions."""
    draw = np.random.default_rng(seed)
    for _ in range(CLIENTS):
        touched = np.sort(draw.choice(ITEMS, POSITIVES + NEGATIVES, replace=False))
        mine = np.zeros(len(touched), bool)
        mine[draw.choice(len(touched), POSITIVES, replace=False)] = True
        yield touched, mine, draw


def truth(rows: Ints, mine: np.ndarray) -> np.ndarray:
    whole = np.zeros(ITEMS, bool)
    whole[rows[mine]] = True
    return whole


def along_a_vector(rows: Ints, mine: np.ndarray, draw: np.random.Generator) -> SeenRows:
    """As matrix factorization trains: positives one way, negatives the other; lengths say nothing."""
    steps = np.where(mine, 1, -1) * draw.uniform(0.5, 1.5, len(rows))
    return SeenRows(rows, np.outer(steps, draw.standard_normal(WIDTH)))


def longer(rows: Ints, mine: np.ndarray, draw: np.random.Generator) -> SeenRows:
    """Positives change more, in directions that say nothing."""
    changes = draw.standard_normal((len(rows), WIDTH))
    changes *= (np.where(mine, 3, 1) / np.linalg.norm(changes, axis=1))[:, None]
    return SeenRows(rows, changes)


def noise(rows: Ints, mine: np.ndarray, draw: np.random.Generator) -> SeenRows:
    return SeenRows(rows, draw.standard_normal((len(rows), WIDTH)))


def four_errors(clients: int, positives: int, negatives: int) -> float:
    """Four standard errors of a mean AUC of rankings without any information."""
    return float(4 * np.sqrt((positives + negatives + 1) / (12 * positives * negatives) / clients))


@dataclass(frozen=True)
class Noisy:
    """An engine whose uploads are replaced by noise on all rows: a perfect protection."""

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        n, items = len(clients), task.data.n_items
        for result in BlockTraining(1)(task, clients):
            n = len(result.clients)
            seed = hash((task.seed, task.context.round, *result.clients.tolist())) % 2**32
            draw = torch.Generator().manual_seed(seed)
            changes = {
                name: torch.randn(n * items, *change.shape[1:], generator=draw)
                for name, change in result.upload.changes.items()
            }
            rows, counts = torch.arange(items).repeat(n), torch.full((n,), items)
            # What the client keeps has to fit what it sends.
            yield replace(result, upload=Upload(rows, counts, changes))
