"""The [[blend]] tables of a matrix: two of its runs as one model.

[[blend]]
of = ["fedslist", "fedsasrec"]                # labels of two [[run]]s of the same data set, protocol and seed
label = "closed & trained"                    # name in tables; default: both labels, with & between them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from solera.bench.entries import PLACE, Entry, is_recorded
from solera.bench.records import RunRequest
from solera.core.errors import ConfigError
from solera.core.types import Frozen


class BlendTable(Frozen):
    """A [[blend]] table of the file."""

    of: tuple[str, str]
    label: Annotated[str, Field(min_length=1)] | None = None


@dataclass(frozen=True)
class Blending(Entry):
    """Two runs, whose records it writes too, and their blend. Its config is that of the first."""

    parts: tuple[Entry, ...] = ()
    results: Path = Path("results")

    @cached_property
    def asked(self) -> RunRequest:
        """The request that the record will contain. A blend is federated if both parts are."""
        base, parts = super().asked, [part.asked for part in self.parts]
        settings: dict[str, Any] = {key: base.config[key] for key in PLACE}
        for name, part in zip(("first", "second"), parts, strict=True):
            settings[name] = {key: value for key, value in part.config.items() if key not in PLACE}
        federated = all(part.kind == "method" for part in parts)
        return base.model_copy(
            update={"kind": "method" if federated else "baseline", "preset": None, "config": settings}
        )

    def complete(self, path: Path) -> bool:
        """Whether the blend and both runs have their records."""
        return path.exists() and all(is_recorded(self.results, part) for part in self.parts)

    @property
    def title(self) -> str:
        """Name shown while the entry runs."""
        return f"{self.label}, both and their blend"

    def __str__(self) -> str:
        return f"{super().__str__()}, a blend"


def blends(table: BlendTable, entries: Sequence[Entry], results: Path) -> list[Blending]:
    """All blends of a table: one for each data set, protocol and seed that both labels have."""
    first, second = ([entry for entry in entries if entry.label == label] for label in table.of)
    pairs = [(one, other) for one in first for other in second if _place(one) == _place(other)]
    if not pairs:
        raise ConfigError(
            f"no run of {table.of[0]!r} has the data set, protocol and seed of one of {table.of[1]!r}",
            "name the labels of two runs of the matrix; the label of a preset is its name",
        )
    label = table.label or " & ".join(table.of)
    return [Blending(label, pair[0].config, parts=pair, results=results) for pair in pairs]


def _place(entry: Entry) -> tuple[Any, ...]:
    return tuple(getattr(entry.config, name) for name in PLACE)
