"""Measure seconds per round and memory of methods, each in a separate process."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from solera.core.threads import torch_threads
from solera.data.interactions import Interactions
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation
from solera.evaluate import split
from solera.methods import build
from solera.runs.environment import peak_bytes

FIVE = ("pfedrec", "fedrap", "pfedclr", "fedem", "plgc")


def bench_methods(
    names: list[str],
    data: Interactions,
    options: Mapping[str, Any],
    *,
    rounds: int = 3,
    threads: int = 1,
    on_method: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Of every method: median seconds of a round, of those the server's, and the peak of its process.

    The options hold for all methods. A name may carry plug-ins, as in fedmf+plgc.
    """
    spawn = multiprocessing.get_context("spawn")
    found = []
    for name in names:
        on_method(name)
        with spawn.Pool(1) as pool:
            found.append(pool.apply(_measure, (name, data, dict(options), rounds, threads)))
    return found


def _measure(
    name: str, data: Interactions, options: dict[str, Any], rounds: int, threads: int
) -> dict[str, Any]:
    method, *plugins = name.split("+")
    parts = split(data, "strict")
    clients = ClientData(parts.train, parts.excluded, data.n_items)
    federation = Simulation(
        build(method, options, plugins),
        clients,
        BlockTraining(threads),
        seed=0,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    seconds, server, reports = [], [], []
    with torch_threads(threads):
        for number in range(rounds):
            start = time.perf_counter()
            reports.append(federation.run_round(number))
            seconds.append(time.perf_counter() - start)
            server.append(reports[-1].seconds_on_server)
    return {
        "method": name,
        "dataset": data.name,
        "clients": reports[-1].clients,
        "rounds": rounds,
        "threads": threads,
        "seconds_per_round": statistics.median(seconds),
        "seconds_on_server": statistics.median(server),
        "peak_bytes": peak_bytes(),
        "bytes_up": reports[-1].bytes_up,
    }
