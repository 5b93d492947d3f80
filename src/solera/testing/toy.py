"""A small federation, and functions to compare its engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

from solera.core.leaf import Params
from solera.core.method import Method
from solera.core.types import Ints
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine.local_training import ClientResult, LocalTraining, Task
from solera.engine.simulation import Simulation

CPU = torch.device("cpu")
ROUNDS = 2  # the first from where everybody begins, the second from what was trained
N_CLIENTS, N_ITEMS, SEED = 20, 90, 5
Order = Callable[[Ints], Ints]


@cache
def toy_data() -> ClientData:
    """20 users with 3 to 60 of 90 items; two more items are never drawn as their negatives."""
    draw = np.random.default_rng(0)
    sizes = np.concatenate([[3, 60], draw.integers(3, 21, N_CLIENTS - 2)])
    orders = [draw.permutation(N_ITEMS).tolist() for _ in sizes]
    train = Ragged.from_lists([order[:n] for order, n in zip(orders, sizes, strict=True)])
    more = Ragged.from_lists([order[n : n + 2] for order, n in zip(orders, sizes, strict=True)])
    return ClientData(train, train.concat(more).sorted_unique(), N_ITEMS)


def difference(one: Params, two: Params) -> float:
    """The largest absolute difference. Names, shapes and integers must agree."""
    return max(float((one[name] - two[name]).abs().max()) for name in _floats(one, two))


def relative_differences(one: Params, two: Params) -> Tensor:
    """All differences, in units of their leaf's largest value.

    A server's state for changes carries the rounding of the leaf it belongs to, so it uses that leaf's unit.
    """
    changed = {name: name.replace("server.m.", "") for name in _floats(one, two)}
    units = {name: two[leaf].abs().max().clamp(min=1e-30) for name, leaf in changed.items()}
    return torch.cat([((one[name] - two[name]).abs() / unit).flatten() for name, unit in units.items()])


def _floats(one: Params, two: Params) -> list[str]:
    assert set(one) == set(two)
    for name in one:
        assert one[name].shape == two[name].shape, name
        assert one[name].is_floating_point() or torch.equal(one[name], two[name]), name
    return [name for name in one if one[name].is_floating_point()]


def _as_single(params: Params) -> Params:
    """Round all floats to float32."""
    return {name: value.float() if value.is_floating_point() else value for name, value in params.items()}


def identical(one: Params, two: Params) -> bool:
    return set(one) == set(two) and all(torch.equal(one[name], two[name]) for name in one)


def state(simulation: Simulation) -> Params:
    """A copy of server and personal state in one dictionary."""
    shared, personal = simulation.state.tensors()
    return {f"shared {name}": value.clone() for name, value in shared.items()} | {
        f"personal {name}": value.clone() for name, value in personal.items()
    }


def held(simulation: Simulation, client: int) -> Params:
    """All that one client holds."""
    personal = simulation.state.personal
    mine = {name: values[client].clone() for name, values in personal.whole.items()}
    for name, rows in personal.rows.items():
        if client in rows:
            mine |= {
                f"{name}/items": rows[client].items.clone(),
                f"{name}/values": rows[client].values.clone(),
            }
    return mine | {name: tables[client].clone() for name, tables in personal.tables.items()}


def part(method: Method, result: ClientResult, client: int) -> Params:
    """The part of a result that belongs to one client."""
    place = result.clients.tolist().index(client)
    counts = result.upload.row_counts.tolist()
    rows = slice(sum(counts[:place]), sum(counts[: place + 1]))
    index = {leaf.name: rows if leaf.per_item else place for leaf in method.leaves}
    return (
        {f"param {name}": value[index[name]] for name, value in result.params.items()}
        | {f"change {name}": value[index[name]] for name, value in result.upload.changes.items()}
        | {"rows": result.upload.rows[rows], "loss": result.loss[place]}
    )


def same(clients: Ints) -> Ints:
    return clients


def backwards(clients: Ints) -> Ints:
    return clients[::-1].copy()


def shuffled(clients: Ints) -> Ints:
    return np.random.default_rng(1).permutation(clients)


class Ordered(LocalTraining):
    """An engine that receives the clients in another order."""

    def __init__(self, train: LocalTraining, order: Order) -> None:
        self._train, self._order = train, order

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        return self._train(task, self._order(clients))


class Watched(LocalTraining):
    """An engine whose results are recorded on their way to the server."""

    def __init__(self, train: LocalTraining) -> None:
        self._train = train
        self.results: list[ClientResult] = []

    def __call__(self, task: Task, clients: Ints) -> Iterator[ClientResult]:
        for result in self._train(task, clients):
            self.results.append(result)
            yield result


def run(
    method: Method, train: LocalTraining, rounds: int = ROUNDS, dtype: torch.dtype = torch.float64
) -> Simulation:
    simulation = Simulation(method, toy_data(), train, seed=SEED, device=CPU, dtype=dtype)
    for round_ in range(rounds):
        simulation.run_round(round_)
    return simulation


def task(simulation: Simulation, round_: int) -> Task:
    context = simulation.method.context(round_, N_ITEMS)
    return Task(simulation.method, simulation.data, simulation.state, context, SEED)
