"""One line of a history from elsewhere, and what the readers have in common."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from solera.core.errors import ConfigError, DataError, closest


class Entry(NamedTuple):
    """What was met and when, in Unix seconds; `others` are names to try after the title."""

    title: str
    year: int | None = None
    time: int | None = None
    item: str | None = None
    others: tuple[str, ...] = ()


def only(options: Mapping[str, str], known: tuple[str, ...], format_: str) -> None:
    """Refuse options that a format does not have."""
    for name in options:
        if name not in known:
            hint = closest(name, list(known)) if known else "leave it out"
            raise ConfigError(f"the format {format_!r} takes no {name!r}", hint)


def read_csv(path: Path, separator: str = ",") -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a file with a header, each with its line number."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, delimiter=separator)
        try:
            for row in rows:
                yield rows.line_num, {key: value or "" for key, value in row.items() if key is not None}
        except csv.Error as error:
            raise malformed(path, rows.line_num, str(error)) from None


def malformed(path: Path, line: int, what: str) -> DataError:
    """An error that names the line."""
    return DataError(f"{path}, line {line}: {what}", "mend or remove the line, or export the file again")


def seconds(text: str) -> int | None:
    """Unix seconds of a date, a date with time (UTC where no zone is given) or a number; None if empty."""
    text = text.strip()
    if not text:
        return None
    if text.lstrip("-").replace(".", "", 1).isdigit():
        return moment(float(text))
    when = datetime.fromisoformat(text)
    return moment((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())


def moment(time: float) -> int:
    """Unix seconds that a calendar can have."""
    if not abs(time) < 1e13:
        raise ValueError("no time that a calendar has")
    return int(time)


def whole(text: str) -> int | None:
    """A whole number; None if empty."""
    return int(text) if text.strip() else None
