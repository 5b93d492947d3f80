"""Versions of a served federation: what devices recommend with, what is on trial, and what to go back to.

versions/standing.json    which version is published, which was before it, and which one is a canary
versions/N/               version N: its parameters, and version.json with its round and its evaluations
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from solera.core.errors import RunError
from solera.core.files import creating_folder, remove_folder, write_atomically
from solera.core.leaf import Params
from solera.federation.server.folder import read_model
from solera.federation.server.gate import Tally
from solera.runs.folder import SavedState, StateToSave

_FOLDER, _STANDING, _ABOUT = "versions", "standing.json", "version.json"
Outcome = Literal["candidate", "canary", "published", "rejected", "rolled back"]


class Version(BaseModel):
    """One version. `catalogue` is the newest catalogue when it was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    round: int
    time: float
    catalogue: int
    outcome: Outcome = "candidate"
    reason: str = ""
    tally: Tally | None = None  # of the evaluation before it was published
    canary_tally: Tally | None = None


class Standing(BaseModel):
    """Which versions devices have; one file, so that it changes all at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    published: int | None = None
    former: int | None = None
    canary: int | None = None
    since: float = 0.0  # when the canary, or else the published version, got its place
    rollbacks: int = 0


class Versions:
    """The versions in a federation's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FOLDER

    @property
    def standing(self) -> Standing:
        """What is published, and what is on trial."""
        path = self._path / _STANDING
        return read_model(path, Standing) if path.exists() else Standing()

    def all(self) -> list[Version]:
        """All versions that are kept, oldest first."""
        found = [read_model(path / _ABOUT, Version) for path in self._path.glob("[0-9]*")]
        return sorted(found, key=lambda version: version.number)

    def get(self, number: int) -> Version:
        """One version; an error if it was not kept."""
        if not (self._path / str(number)).is_dir():
            kept = ", ".join(str(version.number) for version in self.all()) or "none"
            raise RunError(f"version {number} is not kept", f"kept versions: {kept}")
        return read_model(self._path / str(number) / _ABOUT, Version)

    def load(self, number: int) -> SavedState:
        """The parameters of a version."""
        self.get(number)
        return SavedState.read(self._path / str(number))

    def add(self, shared: Params, held: Params, *, round_: int, catalogue: int, time: float) -> Version:
        """Save the state after a round as the next version."""
        last = max((version.number for version in self.all()), default=0)
        version = Version(number=last + 1, round=round_, time=time, catalogue=catalogue)
        self._path.mkdir(mode=0o700, exist_ok=True)
        with creating_folder(self._path / str(version.number), mode=0o700) as partial:
            StateToSave(shared, held).write(partial)
            write_atomically(partial / _ABOUT, version.model_dump_json(indent=2) + "\n")
        return version

    def note(self, version: Version, **changes: object) -> Version:
        """Record what has become of a version."""
        changed = version.model_copy(update=changes)
        text = changed.model_dump_json(indent=2) + "\n"
        write_atomically(self._path / str(version.number) / _ABOUT, text)
        return changed

    def try_out(self, number: int, time: float) -> None:
        """Make a version the canary."""
        self.note(self.get(number), outcome="canary")
        self._stand(self.standing.model_copy(update={"canary": number, "since": time}))

    def publish(self, number: int, time: float) -> None:
        """Make a version the one that all devices get."""
        self.note(self.get(number), outcome="published")
        standing = self.standing
        former = standing.former if standing.published == number else standing.published
        changes = {"published": number, "former": former, "canary": None, "since": time}
        self._stand(standing.model_copy(update=changes))

    def reject(self, number: int, reason: str) -> None:
        """Record that a version did not pass the gate."""
        self.note(self.get(number), outcome="rejected", reason=reason)

    def roll_back(self, reason: str, time: float, to: int | None = None) -> Version:
        """Withdraw the canary; or, if there is none, return to the version that was published before.

        With `to`, that version is published instead.
        """
        standing = self.standing
        withdrawn = standing.canary or standing.published
        if to is None:
            to = standing.published if standing.canary else standing.former
        if to is None or withdrawn is None:
            raise RunError("there is no earlier version to go back to", "solera federation status lists them")
        if to == withdrawn:
            raise RunError(f"version {to} is already published", "give another --to")
        target = self.get(to)
        changes = {"published": to, "former": None, "canary": None, "since": time}
        if standing.canary and to == standing.published:
            changes["former"] = standing.former
        self._stand(standing.model_copy(update=changes | {"rollbacks": standing.rollbacks + 1}))
        self.note(self.get(withdrawn), outcome="rolled back", reason=reason)
        return self.note(target, outcome="published", reason="")

    def target(self, node: int, canary_share: float) -> int | None:
        """The version that a node is to have: the canary on a share of the nodes, else the published one."""
        standing = self.standing
        if standing.canary is not None and is_canary(node, standing.canary, canary_share):
            return standing.canary
        return standing.published

    def prune(self, keep: int) -> list[int]:
        """Delete old versions, but never those that are in use or that a rollback returns to."""
        standing = self.standing
        versions = [version.number for version in self.all()]
        kept = {standing.published, standing.former, standing.canary, *versions[-keep:]}
        gone = [number for number in versions if number not in kept]
        for number in gone:
            remove_folder(self._path / str(number))
        return gone

    def _stand(self, standing: Standing) -> None:
        write_atomically(self._path / _STANDING, standing.model_dump_json(indent=2) + "\n")


def is_canary(node: int, version: int, share: float) -> bool:
    """Whether a node gets a version early. Each version has other canaries, and every look the same ones."""
    digest = hashlib.sha256(f"canary {version} {node}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64
