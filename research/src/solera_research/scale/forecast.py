"""Predictions for sizes nobody has measured: cores, memory, network, money, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from solera.core.closed_form import AnyMethod, ClosedForm
from solera.core.errors import ConfigError
from solera.core.frozen import Frozen
from solera.core.leaf import Home
from solera.methods import find
from solera_research.scale.fit import CostModel, Size

_FLOAT, _DOUBLE = 4, 8  # bytes
_PER_NUMBER = _DOUBLE + 2 * _FLOAT  # of a table: the sum, the table and the next one
GB, MB = 1e9, 1e6


class Prices(Frozen):
    """Prices in US dollars. Memory beyond what comes with a core is paid for as further cores."""

    core_hour: float = 0.05
    gb_per_core: float = 4.0
    gb_out: float = 0.09  # what clients download; uploads are free


SOURCE = (
    "Assumed list prices of November 2026, for on-demand cores and traffic of a large public cloud. "
    "They were not looked up: give your own with --price."
)


class Limits(Frozen):
    """What a federation can bear."""

    download_mb: float = 50.0  # of a client in a round: a phone
    device_mb: float = 200.0  # state on a device
    memory_gb: float = 64.0  # of a rank
    round_minutes: float = 60.0


@dataclass(frozen=True)
class Forecast:
    """What one method takes at one size. `obstacles` is empty if it can be run."""

    method: str
    points: int  # that the model was fitted to
    clients: float  # in a round: all users, for closed forms
    core_seconds: float  # of a round
    seconds: float  # of a round
    memory: float  # bytes of a rank
    down: float  # bytes of a client in a round
    up: float
    network: float  # bytes between clients and server in a round
    between_ranks: float  # bytes that ranks exchange in a round
    dollars: float  # of a round
    test_core_hours: float  # to rank all items for all users
    device: float  # bytes a device keeps
    obstacles: tuple[str, ...]


def forecast(model: CostModel, size: Size, prices: Prices, limits: Limits) -> Forecast:
    """What a method takes, by the unit costs of its model.

    Points whose tables are small may not show what a table takes. So memory is at least that of the sums and
    of two tables, which every rank holds.
    """
    if model.solved:
        size = replace(size, clients=size.users, rounds=1, ranks=1)
    figures = model.figures(size)
    seconds = figures["local"] / size.cores + figures["server"]
    device = figures["state"] / size.users
    network = size.clients * (figures["down"] + figures["up"])
    memory = figures["memory"] if model.solved else max(figures["memory"], _PER_NUMBER * size.table)
    billed = max(size.cores, size.ranks * memory / GB / prices.gb_per_core)
    money = billed * seconds / 3600 * prices.core_hour + size.clients * figures["down"] / GB * prices.gb_out
    found = Forecast(
        method=model.method,
        points=model.points,
        clients=size.clients,
        core_seconds=figures["local"] + figures["server"] * size.cores,
        seconds=seconds,
        memory=memory,
        down=figures["down"],
        up=figures["up"],
        network=network,
        between_ranks=0.0 if size.ranks == 1 else size.ranks * _DOUBLE * size.table,
        dollars=money,
        test_core_hours=figures["evaluation"] * size.users / 3600,
        device=device,
        obstacles=(),
    )
    return replace(found, obstacles=tuple(_obstacles(found, limits)))


def _obstacles(found: Forecast, limits: Limits) -> Iterator[str]:
    if found.down > limits.download_mb * MB:
        yield f"a client downloads {amount(found.down)} in a round, the limit is {limits.download_mb:g} MB"
    if found.device > limits.device_mb * MB:
        yield f"a device keeps {amount(found.device)}, the limit is {limits.device_mb:g} MB"
    if found.memory > limits.memory_gb * GB:
        yield f"a rank needs {amount(found.memory)} of memory, the limit is {limits.memory_gb:g} GB"
    if found.seconds > limits.round_minutes * 60:
        yield f"a round takes {found.seconds / 60:,.0f} minutes, the limit is {limits.round_minutes:g}"


@dataclass(frozen=True)
class ByFormula:
    """What a method's definition alone says of a size, whether or not it was measured."""

    method: str
    down: float  # bytes of a client in a round
    server: float  # bytes for tables and sums on the server
    obstacles: tuple[str, ...]


def by_formula(name: str, size: Size, limits: Limits, options: Mapping[str, Any] | None = None) -> ByFormula:
    """Count the numbers of a method with its default options, or with those given."""
    method: AnyMethod = find(name, options)
    items = int(size.items)
    if isinstance(method, ClosedForm):
        needed = float(method.bytes_needed(items))
        down = float(_FLOAT * sum(_product(shape) for shape in method.shared_shapes(items).values()))
        why = [f"sums and solution take {amount(needed)}, most of it for pairs of items"]
        return ByFormula(name, down, needed, tuple(why) if needed > limits.memory_gb * GB else ())
    shared = method.select(home=Home.SHARED)
    down = float(
        _FLOAT * sum(leaf.size * (items if leaf.per_item else 1) for leaf in shared if not leaf.derived_from)
    )
    tailored = sum(leaf.size for leaf in shared if leaf.per_item and leaf.name in method.tailored)
    server = _PER_NUMBER / _FLOAT * down + _FLOAT * tailored * items * size.users
    why = [] if down else ["nothing is shared, so clients learn nothing from each other"]
    if down > limits.download_mb * MB:
        why.append(f"a client downloads {amount(down)} in a round: the whole table")
    if tailored and server > limits.memory_gb * GB:
        why.append(f"the server keeps a table for every user, {amount(server)}")
    elif server > limits.memory_gb * GB:
        why.append(f"tables and sums on the server take {amount(server)}")
    return ByFormula(name, down, server, tuple(why))


def parse(kind: type[Prices] | type[Limits], pairs: Mapping[str, str]) -> Any:
    """Prices or limits with some values replaced."""
    known = kind.model_fields
    for key, text in pairs.items():
        if key not in known:
            raise ConfigError(f"{key!r} is unknown", f"known are {', '.join(known)}")
        try:
            float(text)
        except ValueError:
            raise ConfigError(f"{key} must be a number, not {text!r}", f"give it as in {key}=1.5") from None
    return kind(**{key: float(text) for key, text in pairs.items()})


def amount(size: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if size < 1000 or unit == "PB":
            return f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"
        size /= 1000
    raise AssertionError


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for each in shape:
        total *= each
    return total
