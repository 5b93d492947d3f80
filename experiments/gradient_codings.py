"""How much of a round's gradient codings of uploads lose, and how many bytes a client sends with them.

    python experiments/gradient_codings.py runs/trained --negatives 2048,256 --clients 64

For clients of a round of FedSASRec, at its first values and after training, the weighted mean g of their
gradients is compared with the mean ĝ of the decoded ones: ‖ĝ − g‖ / ‖g‖. For comparison, "other clients" is
the same with ĝ from as many others, which is the noise that a server without any coding takes steps with.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from solera.coding.settings import upload_coding
from solera.core.arrays import Ints
from solera.core.upload import Upload
from solera.engine.simulation import Simulation
from solera.methods import find
from solera.runs.federation import clients_of, federation
from solera.runs.folder import RunFolder
from solera.runs.run import Run

CODINGS = (None, "int8", "low-rank:8", "low-rank:4", "low-rank:2", "top-k:0.5", "sketch:0.5")


def mean(uploads: Sequence[tuple[Ints, Upload]], simulation: Simulation) -> dict[str, Tensor]:
    """The weighted mean of clients' changes of every leaf."""
    n_items = simulation.data.n_items
    sizes = simulation.method.weights(simulation.data.train.lengths, n_items)
    found: dict[str, Tensor] = {}
    weight = float(sum(sizes[clients].sum() for clients, _ in uploads))
    for clients, upload in uploads:
        weights = torch.from_numpy(sizes[clients] / weight)
        for leaf in simulation.method.leaves:
            change = upload.changes[leaf.sent_as].double()
            if leaf.per_item:
                each = weights.repeat_interleave(upload.row_counts)[:, None]
                total = found.setdefault(leaf.name, torch.zeros(n_items, leaf.size, dtype=torch.float64))
                total.index_add_(0, upload.rows, change * each)
            else:
                total = found.setdefault(leaf.name, torch.zeros(leaf.shape, dtype=torch.float64))
                total += torch.tensordot(weights, change, 1)
    return found


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """‖other − one‖ / ‖one‖."""
    squares = sum(float((other[name] - one[name]).square().sum()) for name in one)
    return (squares / sum(float(value.square().sum()) for value in one.values())) ** 0.5


def main(folder: Path, negatives: Sequence[int], count: int) -> None:
    """Print one row for every coding."""
    run, config = Run.open(folder), RunFolder.open(folder).config
    state = RunFolder.open(folder).state()
    print("| values | negatives | `--upload` | kB up | error |\n|---|---|---|---|---|")
    for number in negatives:
        options = config.options | {"negatives": number, "clients_per_round": 2 * count}
        changed = config.model_copy(update={"options": options})
        method = find(config.method, options)
        simulation = federation(changed, method, clients_of(run.parts), threads=1, device="cpu")
        assert isinstance(simulation, Simulation)
        for values in ("first", "trained"):
            if values == "trained":
                simulation.restore(state.shared, state.personal)
            drawn = np.random.default_rng(0).permutation(simulation.choose(0))
            task = simulation.task(0)
            groups = [
                [(found.clients, found.upload) for found in simulation.train(task, np.sort(some))]
                for some in (drawn[:count], drawn[count:])
            ]
            exact = mean(groups[0], simulation)
            for text in CODINGS:
                if text is None:
                    sent = groups[0]
                    sizes = [upload.bytes_per_client(method.leaves) for _, upload in sent]
                else:
                    coding = upload_coding(text, 0)
                    sent = [(who, coding.coded(upload, method.leaves, 0)) for who, upload in groups[0]]
                    sizes = [coding.bytes_per_client(upload, method.leaves) for _, upload in sent]
                kilobytes = float(np.mean(np.concatenate(sizes))) / 1e3
                error = apart(exact, mean(sent, simulation))
                cells = (values, number, f"`{text}`" if text else "", f"{kilobytes:,.1f}", f"{error:.1%}")
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)
            noise = apart(exact, mean(groups[1], simulation))
            print(f"| {values} | {number} | other clients | | {noise:.1%} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--negatives", type=lambda text: [int(part) for part in text.split(",")], default=[2048]
    )
    parser.add_argument("--clients", type=int, default=64)
    given = parser.parse_args()
    torch.set_num_threads(1)
    main(given.folder, given.negatives, given.clients)
