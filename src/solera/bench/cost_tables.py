"""What a method costs a client: bytes up and down, seconds, memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from solera.bench.blocks import Block, Row
from solera.bench.forms import Cell, Table
from solera.bench.records import Record
from solera.core.errors import SoleraError
from solera.core.method import Method
from solera.methods import find
from solera.runs.costs import client_bytes, touched_rows

NOTE = (
    "Of an average client; means over seeds. Bytes: in a round, and in all rounds until the selected one. "
    "Client seconds: one client's training in a round, on one thread; round seconds: all clients and the "
    "server. Memory is computed, not measured: the model, and for what is trained a copy, a gradient and the "
    "optimizer's means; without samples, activations and the program."
)
HEAD = (
    *("method", "selected round", "kB up a round", "kB down a round", "MB up", "MB down"),
    *("client s a round", "round s", "client memory, MB"),
)


def cost_table(block: Block) -> Table:
    """All federated rows; a centralized model costs a client its whole history instead."""
    rows: list[tuple[Cell, ...]] = [(row.name, *_cells(row)) for row in block.rows if not row.central]
    return Table(f"{block.name}--costs", f"{block.title}: costs of a client", HEAD, rows, block.note(NOTE))


def _cells(row: Row) -> Iterator[Cell]:
    each = (_costs(record) for record in row.records)
    return (_mean(values) for values in zip(*each, strict=True))


def _costs(record: Record) -> tuple[float | None, ...]:
    """What `HEAD` names, in its order; None is not recorded."""
    result, costs = record.result, record.costs
    in_a_round, until = result.bytes, record.bytes_until_selected
    return (
        result.selected_round,
        *((in_a_round.up / 1e3, in_a_round.down / 1e3) if in_a_round else (None, None)),
        *((until.up / 1e6, until.down / 1e6) if until else (None, None)),
        costs.seconds_per_client if costs else None,
        result.seconds_per_round,
        client_memory(record),
    )


def _mean(values: Sequence[float | None]) -> Cell:
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else "not recorded"


def client_memory(record: Record) -> float | None:
    """Megabytes that an average client holds in a round; None if its record does not tell."""
    moved, config = record.result.bytes, record.config
    coded = (
        record.result.upload
        or record.result.download
        or config.get("noise")
        or config.get("wire")
        or config.get("dp")
    )
    if moved is None or coded or record.result.secure_aggregation:
        return None
    try:
        method = find(config["method"], config["options"], config.get("plugins", ()))
    except (SoleraError, KeyError):  # settings of another version
        return None
    if not isinstance(method, Method):  # solved: a client holds what it sends and what it receives
        return (moved.up + moved.down) / 1e6
    touched = touched_rows(method, moved.up)
    return None if touched is None else client_bytes(method, record.result.items, touched) / 1e6
