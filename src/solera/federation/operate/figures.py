"""Figures of a federation: counted from its journals as they grow, and read from its small files.

The journals are read once. Later looks read only what was added, so that a scrape of a federation with years
of rounds takes no longer than one of a new federation.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from solera.core.errors import SoleraError
from solera.device.model import method_of
from solera.federation.operate.run import History
from solera.federation.server.folder import FederationFolder
from solera.federation.server.privacy import spent
from solera.federation.server.serving import Serving
from solera.federation.server.versions import Versions

BUCKETS = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)  # upper limits of seconds of a round


@dataclass
class Counts:
    """What the journals say in all."""

    last: dict[str, Any] = field(default_factory=dict)  # the last round
    rounds: int = 0
    seconds: float = 0.0
    by_duration: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    replies: int = 0
    bytes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)  # of versions
    users: dict[str, int] = field(default_factory=dict)  # by node, when it enrolled
    failure: dict[str, Any] = field(default_factory=dict)  # the last event of a failure

    def add_round(self, line: dict[str, Any]) -> None:
        """Count a line of history.jsonl."""
        self.last = line
        self.rounds += 1
        self.seconds += line["seconds"]
        self.by_duration[bisect.bisect_left(BUCKETS, line["seconds"])] += 1
        self.replies += line["nodes"]
        self.bytes.update(line["bytes"])

    def add_event(self, line: dict[str, Any]) -> None:
        """Count a line of events.jsonl."""
        kind = line["event"]
        self.events[kind] += 1
        if kind == "rejected":
            self.rejected[line["reason"]] += 1
        elif kind == "version":
            self.outcomes[line["outcome"]] += 1
        elif kind == "enrolled":
            self.users[line["node"]] = line["users"]
        elif kind == "failed":
            self.failure = line


class Figures:
    """Figures of one folder; each look is up to date."""

    def __init__(self, path: Path) -> None:
        self.folder = FederationFolder(path)
        self._begin()
        self._spent: tuple[int, float] | None = None  # rounds released, and their ε

    def _begin(self) -> None:
        self._counts = Counts()
        self._history = History(self.folder.path / "history.jsonl", all_lines=True)
        self._events = History(self.folder.path / "events.jsonl", all_lines=True)

    def counts(self) -> Counts:
        """All that the journals say until now."""
        if self._history.is_replaced or self._events.is_replaced:
            self._begin()
        for line in self._history.new():
            self._counts.add_round(line)
        for line in self._events.new():
            self._counts.add_event(line)
        return self._counts

    def serving(self) -> Serving | None:
        """Where the loop of a served federation is."""
        return Serving.read(self.folder.path)

    def versions(self) -> Versions:
        """The versions of a served federation."""
        return Versions(self.folder.path)

    def epsilon(self) -> tuple[float, float] | None:
        """ε spent so far and ε of all rounds; None without --dp."""
        settings = self.folder.identity.settings if self.folder.exists else None
        if settings is None or settings.dp is None or settings.dp.epsilon is None:
            return None
        released = max(self.folder.progress.rounds_done, len(self.folder.opened_rounds()))
        if self._spent is None or self._spent[0] != released:
            try:
                found = spent(settings, method_of(self.folder.bundles()[-1]), released)
            except SoleraError:  # without the extra `privacy`, only the whole is known
                found = settings.dp.epsilon
            self._spent = (released, min(found, settings.dp.epsilon))
        return self._spent[1], settings.dp.epsilon
