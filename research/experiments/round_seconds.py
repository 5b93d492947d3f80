"""CPU seconds of a round on one thread, method by method; with another source tree, in turns with it.

    python research/experiments/round_seconds.py --data ml-100k
    git worktree add /tmp/before v0.2.0
    python research/experiments/round_seconds.py --data ml-100k --against /tmp/before/src

Every method runs with its defaults, or with the options given after a colon. The first round warms up and
does not count. Of the others, the least counts: whatever else the machine does can only add to it. With
`--reference`, it is the reference engine that is measured, on the clients of the first 100 users. With
`--passes`, it is what a search pays for: the rounds that all clients together take part in once, and the
validation after them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import pairwise

import torch

from solera.data.datasets import load
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation, train_one_by_one
from solera.evaluate import split
from solera.methods import build
from solera.runs import AfterRound, Progress, RunConfig
from solera.runs.training import validate_rounds
from solera.study.budget import Effort, full_length

SLOWEST = (
    "fedem",
    "fedncf:local_epochs=10,optimizer=adam,learning_rate=0.01",
    "fedem:form=code,server=code",
    "gpfedrec",
    "pfedclr",
    "fedrap",
    "fedmf",
    "pfedrec",
)


def passes_measured(method: str, options: dict[str, str], dataset: str, passes: int) -> list[float]:
    """CPU seconds of each pass of a trial after the first."""
    data = load(dataset)
    config = RunConfig(method=method, dataset=dataset, options=options)
    ends = [time.process_time()]

    def on_round(now: Progress) -> None:
        if now.entry.validation:
            ends.append(time.process_time())

    trial = full_length(config, Effort(passes=passes + 1), data.n_users)
    validate_rounds(trial, data, threads=1, callbacks=[AfterRound(on_round)])
    return [end - start for start, end in pairwise(ends[1:])]


def measured(name: str, data: str, rounds: int, *, reference: bool, passes: bool) -> list[float]:
    """CPU seconds of each round or pass after the first."""
    torch.set_num_threads(1)
    method, _, given = name.partition(":")
    options = dict(each.split("=", 1) for each in given.split(",") if each)
    if passes:
        return passes_measured(method, options, data, rounds)
    parts = split(load(f"{data}@users=1-100" if reference else data), "strict")
    clients = ClientData(parts.train, parts.excluded, parts.data.n_items)
    engine = train_one_by_one if reference else BlockTraining(1)
    cpu = torch.device("cpu")
    made = Simulation(build(method, options), clients, engine, seed=0, device=cpu, dtype=torch.float32)
    seconds = []
    for round_ in range(rounds + 1):
        start = time.process_time()
        made.run_round(round_)
        seconds.append(time.process_time() - start)
    return seconds[1:]


def in_tree(source: str | None, name: str, more: list[str]) -> list[float]:
    """The same in a process of its own, with the package of that source tree."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"PYTHONPATH": source} if source else {})
    command = [sys.executable, __file__, "--one", name, *more]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def main() -> None:
    """Print a table, one line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("methods", nargs="*", default=SLOWEST, help="as in fedem:form=code")
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", help="the folder src of another work tree")
    parser.add_argument("--reference", action="store_true", help="the reference engine")
    parser.add_argument("--passes", action="store_true", help="passes of a search, with their validations")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        how = {"reference": given.reference, "passes": given.passes}
        print(json.dumps(measured(given.one, given.data, given.rounds, **how)))
        return
    what = "pass" if given.passes else "round"
    print(f"CPU seconds of a {what} on {given.data}, one thread" + (", before, now" * bool(given.against)))
    more = ["--data", given.data, "--rounds", str(given.rounds)]
    more += ["--reference"] * given.reference + ["--passes"] * given.passes
    for name in given.methods:
        before: list[float] = []
        now: list[float] = []
        for _ in range(2 if given.against else 1):  # in turns, so that a slow moment hits both
            if given.against:
                before += in_tree(given.against, name, more)
            now += in_tree(None, name, more)
        was = f"{min(before):8.2f}" if before else ""
        times = f"   x{min(before) / min(now):.2f}" if before else ""
        print(f"{name:60}{was}{min(now):8.2f}{times}", flush=True)


if __name__ == "__main__":
    main()
