"""Parameters in the device's database: little-endian numbers with their type and shape."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def put_tensors(
    connection: sqlite3.Connection, kind: str, user: int | None, tensors: Mapping[str, NDArray[Any]]
) -> None:
    """Replace all tensors of a kind that belong to a user, or to all."""
    connection.execute("DELETE FROM tensors WHERE kind = ? AND user IS ?", (kind, user))
    for name, value in tensors.items():
        plain = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        row = (kind, user, name, plain.dtype.str, json.dumps(plain.shape), plain.tobytes())
        connection.execute("INSERT INTO tensors VALUES (?, ?, ?, ?, ?, ?)", row)


def get_tensors(rows: Iterable[sqlite3.Row]) -> Arrays:
    """What was put, by name."""
    return {
        row["name"]: np.frombuffer(row["numbers"], np.dtype(row["dtype"])).reshape(json.loads(row["shape"]))
        for row in rows
    }


def mean_of(versions: Iterable[Arrays]) -> Arrays:
    """The mean of every tensor over those versions that have it."""
    found: dict[str, list[NDArray[Any]]] = {}
    for each in versions:
        for name, value in each.items():
            found.setdefault(name, []).append(value)
    return {name: np.mean(values, axis=0, dtype=values[0].dtype) for name, values in found.items()}
