"""The shared item table in a run's folder, without reading anything else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from solera.core.errors import RunError
from solera.report.recorded import Recorded
from solera.runs.tables import Table


def shared_table(run: Recorded) -> Table | None:
    """The server's table of item vectors; None where there is no one such table."""
    if run.result is None:
        return None
    with _opened(run, "shared") as file:
        for name in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
            if _is_table(file.get_slice(name).get_shape(), run.result.items):
                table = np.asarray(file.get_tensor(name), np.float64)
                return table if np.isfinite(table).all() else None
    return None


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
