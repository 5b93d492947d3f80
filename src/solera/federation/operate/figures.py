"""Figures and status of a federation: from its journals as they grow, its small files and its database.

The journals are read once. Later looks read only what was added, so that a scrape of a federation with years
of rounds takes no longer than one of a new federation.
"""

from __future__ import annotations

import bisect
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from solera.core.errors import SoleraError
from solera.device.model import method_of
from solera.federation.common import connection
from solera.federation.operate.serve import History
from solera.federation.operate.server import store_of
from solera.federation.server.folder import FederationFolder
from solera.federation.server.privacy import spent
from solera.federation.server.serve import Serving
from solera.federation.server.versions import Versions
from solera.federation.web.database import Place
from solera.federation.web.store import Nodes

_SILENT = 120.0  # seconds without a look after which the loop counts as gone
_OFTEN = 3  # failures in a row that are told as a problem
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


class Status:
    """A federation's status in one document; each look is up to date."""

    def __init__(self, folder: Path) -> None:
        FederationFolder.open(folder)  # an error if there is no federation
        self._path, self._figures = folder, Figures(folder)

    def look(self) -> dict[str, Any]:
        """The current status."""
        figures, counts, serving = self._figures, self._figures.counts(), self._figures.serving()
        nodes = nodes_of(self._path)
        epsilon = figures.epsilon()
        versions = figures.versions()
        return {
            "folder": str(self._path),
            "federation": figures.folder.identity.federation,
            "time": round(time.time(), 3),
            "server": None if nodes is None else {"registered": nodes.registered, "online": nodes.online},
            "serving": None if serving is None else serving.model_dump(exclude={"told"}),
            "rounds": {
                "done": figures.folder.progress.rounds_done,
                "last": counts.last or None,
                "seconds_mean": round(counts.seconds / counts.rounds, 3) if counts.rounds else None,
                "void": counts.events["void"],
            },
            "runs": {kind: counts.events[kind] for kind in ("started", "finished", "failed", "skipped")},
            "last_failure": counts.failure or None,
            "rejected": dict(sorted(counts.rejected.items())),
            "bytes": {direction: counts.bytes[direction] for direction in ("up", "down")},
            "epsilon": None if epsilon is None else {"spent": epsilon[0], "total": epsilon[1]},
            "versions": {
                **versions.standing.model_dump(),
                "kept": [
                    {
                        **version.model_dump(include={"number", "round", "time", "outcome", "reason"}),
                        "hit_rate": None if version.tally is None else round(version.tally.rate, 4),
                    }
                    for version in versions.all()
                ],
            },
            "problems": _problems(serving, nodes),
        }


def nodes_of(folder: Path) -> Nodes | None:
    """Registered and online nodes; None if the server does not answer."""
    try:
        connection.check(Place.read(folder).server)
        with store_of(folder) as store:
            return store.nodes()
    except (SoleraError, OSError):
        return None


def _problems(serving: Serving | None, nodes: Nodes | None) -> list[str]:
    found = [] if nodes is not None else ["the server does not answer"]
    if serving is None:
        return found
    silent = time.time() - serving.beat
    if serving.state == "stopped":
        found.append("the federation is not being served")
    elif silent > _SILENT and serving.state != "training":
        found.append(f"the loop has been silent for {silent / 60:.0f} minutes")
    if serving.failures >= _OFTEN:
        found.append(f"{serving.failures} runs in a row have failed")
    if serving.state == "too few nodes":
        found.append(f"{serving.online} of {serving.smallest_cohort} nodes are online")
    if serving.state == "spent":
        found.append("the privacy budget is spent")
    return found
