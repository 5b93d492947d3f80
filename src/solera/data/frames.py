"""Read interactions from a table in memory: pandas, polars, Arrow, or anything else narwhals supports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from solera.core.errors import DataError
from solera.data.readers import Rows, rows_of
from solera.data.table import Table

_NAME = "the table"


def is_frame(source: object) -> bool:
    """Whether an object is a table in memory from a supported library."""
    return nw.from_native(source, eager_only=True, pass_through=True) is not source


def read_frame(source: Any, columns: dict[str, str] | None = None) -> Rows:
    """Read a table with one row per interaction. `columns` names its user, item, time and title columns."""
    frame = nw.from_native(source, eager_only=True)
    if not len(frame):
        raise DataError(f"{_NAME} has no rows", "check how the table was made")
    found: dict[str, pl.Series] = {}
    for name in frame.columns:
        values = frame[name]
        found[str(name)] = pl.Series(str(name), values.to_list() if _is_text(values) else values.to_numpy())
    rows = np.arange(1, len(frame) + 1, dtype=np.int64)
    return rows_of(Table(Path(_NAME), found, rows, None), columns)


def _is_text(values: nw.Series[Any]) -> bool:
    return not (values.dtype.is_numeric() or values.dtype.is_temporal()) or bool(values.is_null().any())
