"""How many local rounds refresh a device best when its owner has chosen one more item, judged on validation.

    python research/experiments/refresh.py ml-100k

No test item is used: it is removed first. The item before it, the validation item, takes its place, and the
one before that selects the round. Every method is trained on the rest, refreshed with the selecting item for
so many local rounds, and ranks the validation item in the whole catalogue.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import torch

from solera.data.datasets import load
from solera.data.interactions import Interactions, history, with_validation
from solera.engine import Simulation, State
from solera.engine.serving import refreshed
from solera.evaluate import Evaluator, split
from solera.evaluate.protocols import TEST, get
from solera.runs import RunConfig
from solera.runs.federation import clients_of
from solera.runs.training import Training

METHODS = ("fedmf", "fedncf", "pfedrec", "gpfedrec", "fedrap", "pfedclr", "fedem")
LOCAL_ROUNDS = (0, 1, 2, 5, 10, 20)
ROUNDS, PATIENCE = 100, 15


def without_test(data: Interactions) -> Interactions:
    """The data without the last item of every user."""
    rows, part = get("strict").label(data)
    return rows.select(part != TEST)


def figures(method: str, data: Interactions) -> dict[str, float]:
    """NDCG@10 on validation items by the number of local rounds, with the method's defaults."""
    config = RunConfig(method=method, dataset=data.name, rounds=ROUNDS, patience=PATIENCE).resolved()
    parts = split(data, "strict")
    training = Training(config, data, 1, "cpu")
    training.rounds(None, None)
    simulation, done = training.simulation, training.best_round + 1
    assert isinstance(simulation, Simulation)
    assert isinstance(training.best, State)
    simulation.state = training.best
    clients = clients_of(parts)
    longer = replace(clients, train=with_validation(parts).train, excluded=with_validation(parts).excluded)
    users = np.flatnonzero(parts.validation.lengths)
    evaluator, found = Evaluator(parts, 0), {"selected round": float(done)}
    for rounds in LOCAL_ROUNDS:
        twin = refreshed(simulation, longer, users, done, rounds)
        found[str(rounds)] = evaluator.test(twin.serve(history(parts, "test"))).full["ndcg@10"]
    return found


def main() -> None:
    """Print a line per method."""
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        data = without_test(load(name))
        for method in METHODS:
            print(json.dumps({"dataset": name, "method": method, **figures(method, data)}), flush=True)


if __name__ == "__main__":
    main()
