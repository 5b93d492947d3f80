"""What a media server tells of a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from solera.device.bundle import ID_KINDS
from solera.device.importers.entry import Entry


class Told(NamedTuple):
    """Entries of a history, and the library: the server's own ids with entries.

    `write` shows recommendations on the server, by its own ids, where it can.
    """

    history: list[Entry]
    library: list[tuple[str, Entry]]
    write: Callable[[list[str]], None] | None = None


def ids_of(given: Mapping[str, Any] | None) -> dict[str, str]:
    """Ids elsewhere by their kinds, in whatever case a server writes these; TMDB first."""
    plain = {str(kind).lower(): str(id_) for kind, id_ in (given or {}).items() if id_}
    return {kind: plain[kind] for kind in ID_KINDS if kind in plain}
