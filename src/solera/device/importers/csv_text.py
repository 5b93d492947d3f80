"""CSV from outside, with a header."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TextIO

from solera.core.text import clean_text
from solera.device.importers.source import Source


class Table(NamedTuple):
    """The names of the columns; then where each row is, and its fields by column."""

    header: list[str]
    rows: Iterator[tuple[str, dict[str, str]]]

    def shown(self) -> list[str]:
        """The columns for a person to choose from."""
        return [clean_text(name)[:50] for name in self.header[:50]]


@contextmanager
def read_csv(source: Source, separator: str = ",") -> Iterator[Table]:
    """The table in a file. A row that is shorter than the header lacks its last columns."""
    with source.text() as text:
        yield table_of(source, text, separator)


def table_of(source: Source, text: TextIO, separator: str = ",", within: str = "") -> Table:
    """The table in a text; `within` names the entry of a zip."""
    held, where = 0, "line 1"

    def lines() -> Iterator[str]:
        nonlocal held, where
        for where, line in source.lines(text, within):
            held += len(line)
            if held > source.budget.line:  # quoted fields may go on over any number of lines
                raise source.too_long(where)
            yield line

    def records() -> Iterator[list[str]]:
        nonlocal held
        try:
            for fields in csv.reader(lines(), delimiter=separator):
                held = 0
                if fields:
                    yield fields
        except csv.Error as error:
            raise source.malformed(where, str(error)) from None

    found = records()
    header = next(found, [])
    return Table(header, ((where, dict(zip(header, fields, strict=False))) for fields in found))
