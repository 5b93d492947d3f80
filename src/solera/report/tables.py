"""Item tables in a run's folder: the shared ones, and single users' own, without reading everybody's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from solera.core.errors import RunError
from solera.data.ragged import Ints
from solera.report.recorded import Recorded

Table = NDArray[np.float64]  # [items, dimensions]


def shared_table(run: Recorded) -> Table | None:
    """The server's table of item vectors; None where there is no one such table."""
    if run.result is None:
        return None
    with _opened(run, "shared") as file:
        for name in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
            if _is_table(file.get_slice(name).get_shape(), run.result["items"]):
                table = np.asarray(file.get_tensor(name), np.float64)
                return table if np.isfinite(table).all() else None
    return None


def personal_tables(run: Recorded, users: Ints) -> Iterator[Table]:
    """These users' own tables: personal ones where a method has them, else shared rows as they keep them.

    What is narrower than the shared table, as the factors of a low-rank one, is no table of item vectors.
    """
    if run.result is None:
        return
    items, base = run.result["items"], shared_table(run)
    with _opened(run, "personal") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        for name, shape in shapes.items():
            if (
                len(shape) == 3
                and _is_table(shape[1:], items)
                and (base is None or shape[2] == base.shape[1])
            ):
                for user in users:
                    yield np.asarray(file.get_slice(name)[int(user)], np.float64)
                return
        kept = next((name[: -len("/values")] for name in shapes if name.endswith("/values")), None)
        if kept is None or base is None or shapes[f"{kept}/values"][1:] != list(base.shape[1:]):
            return
        clients, counts = (file.get_tensor(f"{kept}/{part}") for part in ("clients", "counts"))
        ends = np.cumsum(counts)
        for user in users:
            table = base.copy()
            for place in np.flatnonzero(clients == user):
                rows = slice(int(ends[place] - counts[place]), int(ends[place]))
                table[file.get_slice(f"{kept}/items")[rows]] = file.get_slice(f"{kept}/values")[rows]
            yield table


def _is_table(shape: list[int], items: int) -> bool:
    """Rows of item vectors; what is as wide as the catalogue is something else."""
    return len(shape) == 2 and shape[0] == items and 2 <= shape[1] < items


@contextmanager
def _opened(run: Recorded, part: str) -> Iterator[Any]:
    path = run.path / f"{part}.safetensors"
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be read: {error}", "train again into a new folder") from None
