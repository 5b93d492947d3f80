"""FedSASRec with the scores of a closed form as an offset of its logits, against their blend.

    solera train --preset strict:fedslist/ml-100k --out runs/closed
    python experiments/offset.py ml-100k runs/closed runs/alone 0 --rounds 160 OPTIONS
    python experiments/offset.py ml-100k runs/closed runs/offset 0.3 --rounds 160 OPTIONS

The third argument but one is a folder for the run, the last is α. Training adds α z_t(i) to the logits of the
items i after t items of a history, where z_t are the standardised scores of the closed form for these items.
α = 0 trains FedSASRec alone. Afterwards weights of the closed form are compared on validation items, as an
offset of the logits and as a blend of standardised scores, and the best of each is measured on test items.
"""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from solera.core.arrays import Floats, Ints
from solera.core.neighbours import NEIGHBOURS, WEIGHTS
from solera.core.randomness import Purpose, client_keys
from solera.core.windows import CatalogueSoftmax, ClientDropout, reads_windows
from solera.data.datasets import load
from solera.data.ragged import Ragged
from solera.data.split import history
from solera.engine import windows as engine
from solera.engine.simulation import Task
from solera.evaluate import Evaluator
from solera.methods.fedslist import FedSLISTConfig
from solera.runs import Run, RunConfig, train
from solera.runs.blend import mixed, standardised

OFFSETS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5)
BLENDS = (0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99)
VALIDATED = 10_000


class Offset:
    """z_t of windows of histories, from the weights of FedSLIST."""

    def __init__(self, weights: Tensor, decays: tuple[float, ...], n_items: int) -> None:
        self.weights = weights.float().view(len(decays), n_items, n_items)
        self.decays = torch.tensor(decays)[:, None, None]

    def of(self, items: Tensor, real: Tensor, columns: Tensor | None) -> Tensor:
        """z at all real places: of all items, or of the place's own item and the given ones."""
        n_items = self.weights.shape[-1]
        found = torch.zeros(*real.shape, n_items if columns is None else len(columns) + 1)
        memory = torch.zeros(len(self.decays), len(items), n_items)
        for place in range(1, items.shape[1]):
            memory.mul_(self.decays).add_(self.weights[:, items[:, place - 1]])
            z = standardised(memory.sum(0))
            if columns is not None:
                z = torch.cat([z.gather(1, items[:, place, None]), z.index_select(1, columns)], 1)
            found[:, place] = z
        return found[real]


def gradient(offset: Offset, alpha: float, task: Task, clients: Ints, weights: Floats) -> engine._Gradient:
    """The gradient of `engine.windows`, with an offset of the logits."""
    scorer, loss = task.method.scorer, task.method.loss
    assert reads_windows(scorer)
    assert isinstance(loss, CatalogueSoftmax)
    windows = engine.windows_of(task, clients)
    keys = client_keys(task.seed, Purpose.DROPOUT, task.context.round, task.data.drawn_by(clients))
    drop = ClientDropout(task.context.hyper["dropout"], keys, windows.lengths)
    params = {name: value.detach().requires_grad_() for name, value in task.state.shared.items()}
    states, real = scorer.states(params, windows.items[:, :-1], drop), windows.real
    each = torch.from_numpy(weights / windows.lengths).to(states)[:, None].expand(real.shape)[real]
    drawn, targets = loss.drawn(task.context), windows.items[real]
    state, items = states[real], task.method.view.see(params)
    added = alpha * offset.of(windows.items, real, drawn)
    if drawn is None:
        own, logits = targets, state @ items.T + added
    else:
        others = state @ items[drawn].T + math.log(len(items) / len(drawn))
        others = others.masked_fill(drawn == targets[:, None], -math.inf)
        logits = torch.cat([(state * items[targets]).sum(1, keepdim=True), others], 1) + added
        own = torch.zeros_like(targets)
    losses = torch.nn.functional.cross_entropy(logits, own, reduction="none")
    slopes = torch.autograd.grad((losses * each).sum(), list(params.values()))
    of_clients = states.new_zeros(real.shape).masked_scatter_(real, losses.detach()).sum(1)
    by = {name: value.neg() for name, value in zip(params, slopes, strict=True)}
    return engine._Gradient(by, of_clients / torch.from_numpy(windows.lengths).to(of_clients), windows)


def compare(closed: Run, trained: Run) -> None:
    """Print the best offset and the best blend on validation, with their test figures."""
    parts, evaluator = closed.parts, Evaluator(closed.parts, 0, validated=VALIDATED)
    trials = [("offset", weight) for weight in OFFSETS] + [("blend", weight) for weight in BLENDS]

    def scores(known: Ragged, trial: tuple[str, float], users: Ints) -> Tensor:
        one, other = (run.serve(known)(users).float() for run in (closed, trained))
        kind, weight = trial
        return other + weight * standardised(one) if kind == "offset" else mixed(one, other, weight)

    known = history(parts, "validation")
    found = {trial: evaluator.validation(partial(scores, known, trial)).full for trial in trials}
    for kind in ("offset", "blend"):
        best = max((trial for trial in trials if trial[0] == kind), key=lambda each: found[each]["ndcg@10"])
        test = evaluator.test(partial(scores, history(parts, "test"), best)).full
        cells = (f"{figures['hr@10']:.4f} / {figures['ndcg@10']:.4f}" for figures in (found[best], test))
        print(f"| {trained.path} | {kind} {best[1]:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("closed", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("alpha", type=float)
    parser.add_argument("options", nargs="*", help="of fedsasrec, e.g. dropout=0.3")
    parser.add_argument("--rounds", type=int, default=160)
    given = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    run = Run.open(given.closed, data=load(given.data))
    shared = run._simulation.state.shared
    method = run._simulation.method
    assert NEIGHBOURS not in shared, "train fedslist without neighbours"
    assert isinstance(method.config, FedSLISTConfig)
    if given.alpha:
        table = Offset(shared[WEIGHTS], method.config.decays, run.data.n_items)
        engine._gradient = partial(gradient, table, given.alpha)
    config = RunConfig(
        method="fedsasrec",
        dataset=given.data,
        rounds=given.rounds,
        options=dict(option.split("=", 1) for option in given.options),
        evaluate_every=given.rounds,
        evaluate_users=1000,
        second_test=False,
    )
    compare(run, train(config, run.data, out=given.out, threads=1))
