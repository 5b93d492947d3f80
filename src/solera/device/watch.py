"""Import the entries of a file again and again, as another program adds to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from solera.core.errors import DataError
from solera.device.device import Device
from solera.device.importers import Report, format_of, import_file

_WATCHED = ("jellyfin", "listenbrainz")
State = tuple[tuple[int, int] | None, ...]


def changes(path: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Yield once for a file that is there, and whenever it changes. `wait` is called between two looks.

    A database in use grows in the log beside it first.
    """
    seen: State = (None,)
    while True:
        found = tuple(_state(each) for each in (path, path.with_name(f"{path.name}-wal")))
        if found != seen and found[0] is not None:
            seen = found
            yield
        else:
            wait()


def watch(
    device: Device, path: Path, options: Mapping[str, str], user: str, every: float
) -> Iterator[Report | DataError]:
    """Import a file at once and whenever it changes. What cannot be read now may be readable later."""
    for _ in changes(path, lambda: time.sleep(every)):
        try:
            format_ = format_of(path)
            if format_ not in _WATCHED:
                hint = "give playback_reporting.db of Jellyfin, or listens in .jsonl of ListenBrainz"
                yield DataError(f"{path} is neither of Jellyfin nor of ListenBrainz", hint)
                continue
            yield import_file(device, format_, path, options, user)
        except DataError as error:
            yield error


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
