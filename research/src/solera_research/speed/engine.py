"""Measure the speed of a round: engines take turns in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from solera.core.method import Method
from solera.core.threads import torch_threads
from solera.data.interactions import Interactions, Split
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation, train_one_by_one
from solera.engine.local_training import LocalTraining
from solera.evaluate import split
from solera.methods import build


def bench_engine(
    name: str,
    data: Interactions,
    options: Mapping[str, Any],
    *,
    rounds: int = 3,
    on_round: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Median seconds per round of every engine, and their ratios.

    The machine may be busy: engines take turns, so that a slow moment hits all of them, and ratios are
    taken within a turn.
    """
    method = build(name, options)
    parts = split(data, "strict")
    engines = _engines()
    federations = {key: _federation(method, parts, train) for key, train in engines.items()}
    seconds: dict[str, list[float]] = {key: [] for key in engines}
    with torch_threads(1):
        for round_ in range(rounds + 1):
            for key, federation in federations.items():
                on_round(f"round {round_}, {key}" if round_ else f"warming up, {key}")
                start = time.perf_counter()
                federation.run_round(round_)
                if round_:  # the first one allocates and warms up
                    seconds[key].append(time.perf_counter() - start)

    def ratio(slow: str, fast: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))

    return {
        "method": name,
        "dataset": data.name,
        "options": method.config.model_dump(mode="json"),
        "rounds": rounds,
        "seconds_per_round": {key: statistics.median(values) for key, values in seconds.items()},
        "block_vs_reference": ratio("reference", "block"),
        "two_threads_vs_one": ratio("block", "block, 2 threads"),
        "largest_difference": _difference(federations["block"], federations["reference"]),
    }


def _engines() -> dict[str, LocalTraining]:
    return {
        "block": BlockTraining(threads=1),
        "block, 2 threads": BlockTraining(threads=2),
        "block, rows always gathered": BlockTraining(threads=1, whole_up_to=0),
        "block, always whole tables": BlockTraining(threads=1, whole_up_to=10**9),
        "reference": train_one_by_one,
    }


def _federation(method: Method, parts: Split, train: LocalTraining) -> Simulation:
    clients = ClientData(parts.train, parts.excluded, parts.data.n_items)
    return Simulation(method, clients, train, seed=0, device=torch.device("cpu"), dtype=torch.float32)


def _difference(one: Simulation, other: Simulation) -> float:
    """The largest difference between two states, relative to the largest value of the leaf."""
    pairs = [(value, other.state.shared[name]) for name, value in one.state.shared.items()]
    pairs += [(value, other.state.personal.whole[name]) for name, value in one.state.personal.whole.items()]
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
