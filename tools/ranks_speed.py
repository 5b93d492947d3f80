"""How much faster two ranks are than one: rounds of one rank and of two in turn, with one thread each.

Example: python tools/ranks_speed.py pfedrec million.parquet -o clients_per_round=10000
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor

from solera.cli.data import parse_pairs
from solera.data.datasets import load
from solera.engine.ranks import Ranks
from solera.evaluate import split
from solera.methods import find
from solera.runs.assembly import run_config
from solera.runs.federation import clients_of, federation


class Alone(Ranks):
    """One rank, while the other waits."""

    def add(self, values: Tensor) -> None:
        """Leave values as they are: there is nobody else."""

    def largest(self, values: Tensor) -> Tensor:
        """The values themselves."""
        return values


def main() -> None:
    """Print the ratio of every pair of rounds, and their median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method")
    parser.add_argument("dataset")
    parser.add_argument("-o", "--option", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    both = Ranks.joined()
    if both is None:
        again = ["-m", "torch.distributed.run", "--nproc-per-node", "2", *sys.argv]
        sys.exit(subprocess.run([sys.executable, *again], check=False).returncode)
    torch.set_num_threads(1)
    config = run_config(given.method, given.dataset, options=parse_pairs(given.option, "-o key=value"))
    method = find(config.method, config.options)
    clients = clients_of(split(load(given.dataset), "strict"))
    alone = federation(config, method, clients, 1, "cpu", ranks=Alone(0, 1)) if not both.rank else None
    shared = federation(config, method, clients, 1, "cpu", ranks=both)
    ratios = []
    for number in range(given.rounds):
        seconds = []
        for each in (alone, shared):
            both.wait()
            start = time.perf_counter()
            if each:
                each.run_round(number)
            both.wait()
            seconds.append(time.perf_counter() - start)
        ratios.append(seconds[0] / seconds[1])
        if not both.rank:
            one, two = seconds
            print(f"round {number + 1}: one rank {one:.2f} s, two {two:.2f} s: {one / two:.2f} times")
    if not both.rank:
        print(f"median {statistics.median(ratios):.2f} times the clients per second")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
