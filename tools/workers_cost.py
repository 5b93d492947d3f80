"""What `--workers 1` costs: rounds of the plain engine and of one rank in turn, in CPU time of one thread.

Example: python tools/workers_cost.py pfedrec ml-1m
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

from solera.data.datasets import load
from solera.engine.ranks import Ranks
from solera.evaluate import split
from solera.methods import find
from solera.runs.assembly import run_config
from solera.runs.federation import Federation, clients_of, federation


def main() -> None:
    """Print the ratio of every pair of rounds, and their median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method")
    parser.add_argument("dataset")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        _compare(given.method, given.dataset, given.rounds)


def _compare(name: str, dataset: str, rounds: int) -> None:
    config = run_config(name, dataset)
    clients = clients_of(split(load(dataset), "strict"))
    method = find(name)
    plain = federation(config, method, clients, 1, "cpu")
    rank = federation(config, method, clients, 1, "cpu", ranks=Ranks(0, 1))
    ratios = []
    for number in range(rounds):
        one, other = _seconds(plain, number), _seconds(rank, number)
        ratios.append(other / one)
        print(f"round {number + 1}: {one:.2f} s, one rank {other:.2f} s, ratio {ratios[-1]:.3f}")
    print(f"median ratio {statistics.median(ratios):.3f}")


def _seconds(simulation: Federation, number: int) -> float:
    start = time.process_time()
    simulation.run_round(number)
    return time.process_time() - start


if __name__ == "__main__":
    main()
