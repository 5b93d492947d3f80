"""Write a large table to a file, batch by batch, without holding it in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from solera.core.errors import DataError
from solera.core.files import replacing_file

SUFFIXES = (".parquet", ".csv")


def write_batches(path: Path, batches: Iterable[pl.DataFrame], schema: Mapping[str, Any]) -> None:
    """Write the batches to a .parquet or .csv file, which appears when it is complete."""
    from polars.io.plugins import register_io_source  # noqa: PLC0415 - only here

    if path.suffix not in SUFFIXES:
        raise DataError(f"cannot write {path.name!r}", f"give a name that ends in {' or '.join(SUFFIXES)}")

    def source(*_: Any) -> Iterator[pl.DataFrame]:
        yield from batches

    frame = register_io_source(source, schema=dict(schema))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_file(path) as partial:
            (frame.sink_parquet if path.suffix == ".parquet" else frame.sink_csv)(partial)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error}", "give another file name") from None
