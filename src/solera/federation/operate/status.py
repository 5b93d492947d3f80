"""The status of a federation in one document, from what its server writes, and from its database."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from solera.core.errors import SoleraError
from solera.federation.common.address import Place
from solera.federation.operate import reachability
from solera.federation.operate.figures import Figures
from solera.federation.operate.server import store_of
from solera.federation.server.folder import FederationFolder
from solera.federation.server.serving import Serving
from solera.federation.web.store import Nodes

_SILENT = 120.0  # seconds without a look after which the loop counts as gone
_OFTEN = 3  # failures in a row that are told as a problem


class Status:
    """A federation's status; each look is up to date."""

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
        reachability.check(Place.read(folder).server)
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
