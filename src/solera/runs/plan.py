"""What a run will take, said before it starts, and what a finished run of a method costs.

A plan has memory by part, and time from a few clients and users. Costs are parameters on a client and on the
server, seconds of both, and a client's memory.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from pydantic import ByteSize, TypeAdapter, ValidationError

from solera.core.closed_form import AnyMethod
from solera.core.errors import ConfigError
from solera.core.frozen import Frozen
from solera.core.leaf import Home
from solera.core.method import Method
from solera.core.parts import Adam
from solera.core.types import Floats, Ints
from solera.data.interactions import Split, history
from solera.engine import OneRound, Simulation
from solera.engine.block import BLOCK_NUMBERS, BLOCK_SAMPLES
from solera.engine.row_store import SPARE
from solera.engine.serving import refresh_rounds
from solera.evaluate import Evaluator
from solera.evaluate.metrics import known_metrics
from solera.runs.environment import used_bytes
from solera.runs.federation import Federation
from solera.runs.result import RoundEntry
from solera.runs.settings import RunConfig

_FLOAT, _DOUBLE, _INT = 4, 8, 4  # bytes
_BLOCKS = 12  # copies of a block's numbers on a thread while it is trained, and finished blocks that wait
GB = 1e9


class Planned(Protocol):
    """What is asked of a run that has not begun."""

    config: RunConfig
    split: Split
    evaluator: Evaluator
    simulation: Federation

    @property
    def both_tests(self) -> bool:
        """Whether test items are ranked with and without the validation item in the model."""
        ...


@dataclass(frozen=True)
class RunPlan:
    """Estimates for a run. `seconds` is empty for methods that are solved in one round."""

    rounds: int
    clients: int  # in a round
    memory: dict[str, int]  # bytes by part
    seconds: dict[str, float]  # by part
    limit: int | None  # bytes

    @property
    def bytes(self) -> int:
        """Memory of all parts."""
        return sum(self.memory.values())

    def check(self) -> None:
        """Raise an error if the run would take more memory than allowed."""
        if self.limit is None or self.bytes <= self.limit:
            return
        largest = max(self.memory, key=lambda part: self.memory[part])
        raise ConfigError(
            f"the run would take about {self.bytes / GB:.1f} GB, more than --memory allows "
            f"({self.limit / GB:.1f} GB); most of it is for {largest} ({self.memory[largest] / GB:.1f} GB)",
            "allow more, or lower --rounds, clients_per_round or embedding_size; or share it among --workers",
        )


def parse_memory(text: str) -> int:
    """Bytes of an amount of memory such as 8GB, 500MB or 1.5GiB."""
    try:
        found = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        found = 0
    if found <= 0:
        raise ConfigError(f"{text!r} is not an amount of memory", "give it as in --memory 8GB")
    return found


def plan_of(training: Planned, limit: int | None = None, threads: int = 0) -> RunPlan:
    """Estimate what a run takes. Trains and ranks a few clients for that, without changing any state."""
    clients = int(np.count_nonzero(training.split.train.lengths))
    simulation = training.simulation
    if isinstance(simulation, Simulation):
        clients = len(simulation.choose(0))
    return RunPlan(
        training.config.rounds,
        clients,
        _memory(training, threads or os.cpu_count() or 1),
        _seconds(training),
        limit,
    )


def _memory(training: Planned, threads: int) -> dict[str, int]:
    found = {"program and data": used_bytes() or 0}
    simulation, n_items = training.simulation, training.split.data.n_items
    if isinstance(simulation, OneRound):
        lengths = training.split.train.lengths
        found["sums and solution"] = simulation.method.bytes_needed(n_items, lengths)
    else:
        found |= _of_rounds(training, simulation, threads)
    users = int(np.count_nonzero(training.split.test.lengths))
    figures = 2 * len(known_metrics()) * len(training.evaluator.cutoffs)  # of every user, in both rankings
    found["evaluation"] = 3 * _FLOAT * training.evaluator.scores_at_once + _DOUBLE * users * (figures + 6)
    return found


def _of_rounds(training: Planned, simulation: Simulation, threads: int) -> dict[str, int]:
    method, n_items = simulation.method, training.split.data.n_items
    sent = sum(leaf.size * (n_items if leaf.per_item else 1) for leaf in method.leaves if leaf.sent_as)
    numbers = max(1, sum(leaf.size for leaf in method.select(per_item=True)))
    block = min(BLOCK_NUMBERS, BLOCK_SAMPLES * numbers) * _FLOAT
    personal = simulation.state.personal
    # The best state and the last one share the rows of clients that did not train in between.
    kept = _rows(training, simulation) * sum(
        _INT + _FLOAT * leaf.size for leaf in method.leaves if leaf.name in personal.rows
    )
    copied = sum(values.nbytes for values in (personal.whole | personal.tables).values())
    tailored = sum(simulation.state.shared[name].nbytes for name in method.tailored)
    return {
        "sums and next tables": (_DOUBLE + 2 * _FLOAT) * sent,
        "training blocks": threads * _BLOCKS * block,
        "best state": copied + tailored,
        "clients' rows": min(int((1 + SPARE) * 2 * kept), 2 * personal.rows_in_memory),
    }


def _rows(training: Planned, simulation: Simulation) -> float:
    """Rows that clients will have touched at the end of the run, all of them together."""
    lengths = training.split.train.lengths
    able = lengths[lengths > 0]
    share = min(1.0, len(simulation.choose(0)) / len(able))
    took_part = 1 - (1 - share) ** training.config.rounds
    touched = touched_rows(able, training.split.data.n_items, simulation.task(0).context.negatives)
    return float(touched.sum()) * took_part


def touched_rows(items: ArrayLike, n_items: float, negatives: int) -> Floats:
    """Rows that a client with so many training items trains: of these, and of distinct negatives.

    Expected, if negatives were drawn independently.
    """
    own = np.asarray(items, dtype=float)
    others = np.maximum(1.0, n_items - own)
    return np.asarray(own - others * np.expm1(-own * negatives / others))


def _seconds(training: Planned) -> dict[str, float]:
    simulation, config = training.simulation, training.config
    if isinstance(simulation, OneRound):
        return {}
    chosen, lengths = simulation.choose(0), simulation.data.train.lengths
    some = _like(chosen, lengths, 4 * BLOCK_SAMPLES)
    a_round = _timed(lambda: _train(simulation, some))
    a_round *= lengths[chosen].sum() / max(1, lengths[some].sum())
    evaluator = training.evaluator
    a_user = evaluator.seconds_per_user(simulation.serve(history(training.split, "test")))
    validations = len(
        {*range(config.evaluate_every, config.rounds + 1, config.evaluate_every), config.rounds}
    )
    found = {
        "training": config.rounds * a_round,
        "validation": validations * evaluator.users("validation") * a_user,
        "test": evaluator.users("test") * a_user,
    }
    if training.both_tests:
        found["test"] *= 2
        if simulation.method.scorer.learns_from == "items":
            of_all = lengths[training.split.validation.lengths > 0].sum() / max(1, lengths[chosen].sum())
            found["test"] += refresh_rounds(config.rounds) * a_round * of_all
    return found


def _train(simulation: Simulation, clients: Ints) -> None:
    """Train some clients as the rounds will, and forget the result."""
    task = simulation.task(0)
    if not (simulation.adds_up and deque(simulation.train.sums(task, clients), maxlen=1)):
        deque(simulation.train(task, clients), maxlen=0)


def _like(clients: Ints, lengths: Ints, items: int) -> Ints:
    """Every k-th of the clients, so that together they have about so many training items."""
    step = max(1, int(lengths[clients].sum()) // items)
    return clients[::step]


def _timed(work: Callable[[], object]) -> float:
    """Seconds of the second call. The first one also loads what all later ones share."""
    work()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Costs(Frozen):
    """Parameters, and the median over rounds of a mean client's seconds and of the server's."""

    client_parameters: int
    server_parameters: int
    seconds_per_client: float | None = None
    seconds_of_server: float | None = None


def costs(method: AnyMethod, n_users: int, n_items: int, history: Sequence[RoundEntry]) -> Costs | None:
    """The costs of a finished run; None for a method that is solved in one round."""
    if method.one_round:
        return None
    sizes = _sizes(method, n_items)
    shared = [leaf.name for leaf in method.select(home=Home.SHARED) if leaf.name in sizes]
    timed = [entry for entry in history if entry.seconds.server is not None and entry.clients]
    clients = [(entry.seconds.train - (entry.seconds.server or 0.0)) / entry.clients for entry in timed]
    return Costs(
        client_parameters=sum(sizes.values()),
        server_parameters=sum(sizes[name] * (n_users if name in method.tailored else 1) for name in shared),
        seconds_per_client=statistics.median(clients) if timed else None,
        seconds_of_server=statistics.median(entry.seconds.server or 0.0 for entry in timed)
        if timed
        else None,
    )


def client_bytes(method: Method, n_items: int, touched: float) -> int:
    """Memory of a client while it trains, computed for so many touched rows, in single precision.

    It holds all leaves whole, those received and its own. Of every leaf that it trains it also holds a
    working copy and a gradient, and two running means under Adam: of tables, of the touched rows alone.
    Samples, activations and the program itself are not counted.
    """
    leaves = {leaf.name: leaf for leaf in method.leaves}
    states: dict[str, int] = {}
    for stage in method.update.stages(method.context(0, n_items)):
        for part in (part for move in stage.moves for part in move.parts):
            kept = 4 if isinstance(part.optimizer, Adam) else 2
            states |= {name: max(kept, states.get(name, 0)) for name in part.leaves}
    trained = sum(
        count * leaves[name].size * (touched if leaves[name].per_item else 1)
        for name, count in states.items()
    )
    return round(_FLOAT * (sum(_sizes(method, n_items).values()) + trained))


def rows_of_upload(method: Method, bytes_up: float) -> float | None:
    """Rows in an uncoded upload of so many bytes; None if a client sends no rows."""
    sent = [leaf for leaf in method.leaves if leaf.sent_as]
    per_row = sum(leaf.size for leaf in sent if leaf.per_item)
    fixed = sum(leaf.size for leaf in sent if not leaf.per_item)
    return (bytes_up - _FLOAT * fixed) / (_FLOAT * per_row + _INT) if per_row else None


def _sizes(method: Method, n_items: int) -> dict[str, int]:
    """Numbers in every leaf. A derived leaf is computed from another one, and need not be stored."""
    return {
        leaf.name: leaf.size * (n_items if leaf.per_item else 1)
        for leaf in method.leaves
        if not leaf.derived_from
    }
