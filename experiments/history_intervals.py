"""Memories of FedHist that fade by days, or by positions and days, compared in one place before any code.

    python experiments/history_intervals.py ml-100k --epochs 8

Weights of an item that is k positions and Δ days older than the newest one, for every decay a:

    positions  a^k              days  a^(Δ / D)              both  a^k · 0.5^(Δ / D)

Model and loss are those of FedHist. Training is centralized, by Adam on batches of users with shared
negatives: what does not help here would not help in federated rounds. Validation items choose the epoch.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np
import torch
from torch import Tensor

from solera.data.datasets import load
from solera.data.ragged import Ragged, days_of_all
from solera.data.split import history
from solera.evaluate import Evaluator, split

DECAYS, SIZE, LENGTH, USERS, NEGATIVES, RATE = (0.6, 0.95), 32, 150, 64, 1024, 0.004
FORMS = (("positions", 0.0), ("days", 30.0), ("both", 1.0), ("both", 30.0))


def faded(kind: str, days: float, ages: Tensor, gaps: Tensor) -> Tensor:
    """Weights [decays, …] of items by their ages in positions and days."""
    decays = torch.tensor(DECAYS).view(-1, *[1] * ages.dim())
    if kind == "days":
        return decays ** (gaps / days)
    found = decays ** ages.clamp(min=0)
    return found * 0.5 ** (gaps / days) if kind == "both" else found


class Memory:
    """The model: two tables, and memories of histories padded at the end."""

    def __init__(self, n_items: int, form: tuple[str, float]) -> None:
        torch.manual_seed(0)
        self.form = form
        self.inputs = (torch.randn(n_items, SIZE) / SIZE**0.5).requires_grad_()
        self.items = torch.zeros(n_items, 1 + SIZE).requires_grad_()

    def before(self, items: Tensor, days: Tensor) -> Tensor:
        """Memories [users, length + 1, 1 + d] before every position, and after the last."""
        length = items.shape[1]
        place = torch.arange(length + 1)
        ages = (place[:, None] - 1 - place[:-1])[None]  # [1, length + 1, length]
        newest = torch.cat([days[:, :1], days], 1)
        gaps = (newest[:, :, None] - days[:, None]).clamp(min=0)
        weights = faded(*self.form, ages, gaps) * (ages >= 0)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12).sqrt()
        parts = self.inputs[items].chunk(len(DECAYS), -1)
        memory = torch.cat([each @ part for each, part in zip(weights, parts, strict=True)], -1)
        return torch.cat([torch.ones_like(memory[..., :1]), memory], -1)


def batch(histories: Ragged, users: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Items, days and lengths of the users' latest items, padded."""
    lengths = np.minimum(histories.lengths[users], LENGTH)
    place = np.arange(max(1, lengths.max()))
    where = histories.offsets[1:][users][:, None] - lengths[:, None] + np.minimum(place, lengths[:, None] - 1)
    where = np.clip(where, 0, len(histories.values) - 1)
    found = histories.values[where].astype(np.int64), days_of_all(histories)[where]
    return torch.from_numpy(found[0]), torch.from_numpy(found[1]).float(), torch.from_numpy(lengths)


def train(name: str, form: tuple[str, float], epochs: int) -> str:
    """Train with one form of fading and return its row."""
    data, start = load(name), time.perf_counter()
    parts = split(data, "strict")
    model, draw = Memory(data.n_items, form), np.random.default_rng(0)
    optimizer = torch.optim.Adam([model.inputs, model.items], lr=RATE)
    evaluator, best = Evaluator(parts, 0, validated=3000), (-1.0, 0.0, 0, model.inputs, model.items)

    def scores(known: Ragged, users: np.ndarray) -> Tensor:
        items, days, lengths = batch(known, users)
        with torch.no_grad():
            return model.before(items, days)[torch.arange(len(users)), lengths] @ model.items.T

    for epoch in range(epochs):
        for users in np.array_split(draw.permutation(data.n_users), data.n_users // USERS):
            items, days, lengths = batch(parts.train, users)
            real = torch.arange(items.shape[1]) < lengths[:, None]
            memories = model.before(items, days)[:, :-1][real]
            drawn = torch.from_numpy(draw.choice(data.n_items, min(NEGATIVES, data.n_items), replace=False))
            own = (memories * model.items[items[real]]).sum(1, keepdim=True)
            others = memories @ model.items[drawn].T + np.log(data.n_items / len(drawn))
            others = others.masked_fill(drawn == items[real][:, None], -torch.inf)
            loss = -torch.log_softmax(torch.cat([own, others], 1), 1)[:, 0].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found = evaluator.validation(partial(scores, history(parts, "validation"))).full
        if found["ndcg@10"] > best[0]:
            tables = (model.inputs.detach().clone(), model.items.detach().clone())
            best = (found["ndcg@10"], found["hr@10"], epoch + 1, *tables)
    model.inputs, model.items = best[3], best[4]
    test = evaluator.test(partial(scores, history(parts, "test"))).full
    label = form[0] + (f", D = {form[1]:g}" if form[1] else "")
    seconds = time.perf_counter() - start
    return (
        f"| {name} | {label} | {best[1]:.4f} / {best[0]:.4f} | {test['hr@10']:.4f} / {test['ndcg@10']:.4f} | "
        f"{best[2]} | {seconds:.0f} s |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for each in FORMS:
        print(train(given.data, each, given.epochs), flush=True)
