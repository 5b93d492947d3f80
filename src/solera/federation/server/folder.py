"""A federation's folder on its server; every file is written whole or not at all.

settings.json         what the operator decided, and the federation's id
roster.json           the nodes' keys, signed by the authority, where uploads are masked
catalogue-N.bundle    the signed bundle of every version of the catalogue
privacy.json          what is guaranteed, under --dp
history.jsonl         one line per finished round
events.jsonl          everything worth knowing in between: who came, what was refused and why
openings.jsonl        one line per round whose masked sums were opened, and over whom, written before they are
opening/              what the sums that are being opened need, until their round is done
checkpoint-N/         the latest state, to go on from; N grows with every one, and is at least the round
lock                  held by the server's app that is at work
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solera.core.closed_form import AnyMethod
from solera.core.errors import RunError
from solera.core.files import PRIVATE, next_folder, numbered_folders, replacing_file, write_atomically
from solera.core.leaf import Params
from solera.device.bundle import Bundle
from solera.device.model import method_of
from solera.federation.common.journal import Journal, unwritable
from solera.federation.common.json_log import current_round
from solera.federation.common.settings import Settings
from solera.federation.secure.roster import ROSTER, Roster
from solera.federation.server.openings import (
    Opening,
    RoundProgress,
    drop_opening,
    read_opening,
    write_opening,
)
from solera.federation.server.privacy import changed, check_given, settled, statement
from solera.runs.folder import SavedState, StateToSave

_SETTINGS, _PRIVACY, _CHECKPOINT, _OPENINGS = (
    "settings.json",
    "privacy.json",
    "checkpoint-",
    "openings.jsonl",
)
_LEAVING = 60.0  # seconds that a former app may take to end, once it was told to
Read = TypeVar("Read", bound=BaseModel)


class Identity(BaseModel):
    """Identity of a federation, written before anything else."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    federation: str = Field(pattern="^[0-9a-f]{32}$")
    settings: Settings


class FederationFolder:
    """Folder of a federation. Only the server app writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, bundle: Bundle, settings: Settings) -> FederationFolder:
        """Create a federation. Other existing files are left unchanged."""
        folder = cls(path)
        if folder.exists:
            raise RunError(f"{path} already contains a federation", "give --resume to continue it")
        method = method_of(bundle)
        settings = settled(settings, method)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in path.glob("catalogue-*.bundle"):  # by a creation that was killed
                left.unlink()
            folder._put(bundle)
            folder._decide(secrets.token_hex(16), settings, method)
        except OSError as error:
            raise RunError(f"{path} cannot be written: {error.strerror}", "give another folder") from None
        return folder

    @classmethod
    def prepare(
        cls, path: Path, bundle: Bundle | None, settings: dict[str, Any], *, resume: bool
    ) -> FederationFolder:
        """Create a federation, or continue one with the newly given settings."""
        if not resume:
            if bundle is None:
                raise RunError("a new federation needs --bundle", "`solera bundle new` makes a bundle")
            check_given(settings, settings.get("dp"))
            return cls.create(path, bundle, Settings(**settings))
        folder = cls.open(path)
        known = folder.bundles()
        is_new = bundle is not None and all(bundle.digest != each.digest for each in known)
        if bundle is not None and is_new:
            _check_continues(known[-1], bundle)
        folder.change(settings)
        if bundle is not None and is_new:
            folder._put(bundle)
        return folder

    @classmethod
    def open(cls, path: Path) -> FederationFolder:
        """Open an existing federation."""
        folder = cls(path)
        if not folder.exists:
            raise RunError(f"{path} contains no federation", "`solera federation run` starts one")
        return folder

    def change(self, given: dict[str, Any]) -> None:
        """Change the settings of the federation."""
        former, method, saved = self.identity, method_of(self.bundles()[-1]), self.load()
        settings = changed(former.settings, given, method, saved[0].rounds_done if saved else 0)
        self._decide(former.federation, settings, None if saved else method)

    def _decide(self, federation: str, settings: Settings, method: AnyMethod | None) -> None:
        """With a method, before the first round, also what is guaranteed."""
        if method is not None and (stated := statement(settings, method)):
            write_atomically(self.path / _PRIVACY, json.dumps(stated, indent=2, ensure_ascii=False) + "\n")
        identity = Identity(federation=federation, settings=settings)
        write_atomically(self.path / _SETTINGS, identity.model_dump_json(indent=2) + "\n")

    @property
    def exists(self) -> bool:
        """Whether the folder contains a federation."""
        return (self.path / _SETTINGS).is_file()

    @property
    def identity(self) -> Identity:
        """Id and settings."""
        return read_model(self.path / _SETTINGS, Identity)

    @property
    def privacy(self) -> dict[str, Any] | None:
        """Privacy guarantee; None without --dp."""
        if self.identity.settings.dp is None:
            return None
        stated: dict[str, Any] = json.loads((self.path / _PRIVACY).read_text(encoding="utf-8"))
        return stated

    @property
    def roster(self) -> Roster:
        """Signed list of nodes for masked rounds."""
        return read_model(self.path / ROSTER, Roster)

    def keep_roster(self, roster: Roster) -> None:
        """Store a list of nodes whose signature was checked."""
        write_atomically(self.path / ROSTER, roster.model_dump_json(indent=2) + "\n")

    def bundles(self) -> list[Bundle]:
        """Bundles, one per version of the catalogue, oldest first."""
        paths = self.path.glob("catalogue-*.bundle")
        return [Bundle.open(path) for path in sorted(paths, key=lambda path: int(path.stem.split("-")[1]))]

    @contextmanager
    def alone(self, patience: float = _LEAVING) -> Iterator[None]:
        """Lock the federation against a second run. The lock ends with the process."""
        try:
            held = FileLock(self.path / "lock", timeout=patience, mode=PRIVATE).acquire(poll_interval=0.2)
        except Timeout:
            raise RunError(
                f"another run of the federation in {self.path} is under way",
                "wait until it has ended, then run again with --resume",
            ) from None
        with held:
            yield

    def add_bundle(self, bundle: Bundle) -> None:
        """Add the next version of the catalogue. Existing items keep their positions."""
        _check_continues(self.bundles()[-1], bundle)
        self._put(bundle)

    def _put(self, bundle: Bundle) -> None:
        with replacing_file(self.path / f"catalogue-{bundle.manifest.catalogue_version}.bundle") as partial:
            shutil.copyfile(bundle.path, partial)

    def event(self, kind: str, **what: Any) -> None:
        """Append a line to the event log."""
        line = {"time": round(time.time(), 3), "event": kind, **what}
        Journal(self.path / "events.jsonl").append(line | _of_round())

    def add_round(self, entry: dict[str, Any]) -> None:
        """Append a round that counted to the history, with the time."""
        line = entry | {"time": round(time.time(), 3)} | _of_round()
        Journal(self.path / "history.jsonl").append(line, sync=True)

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The lines of history.jsonl or events.jsonl."""
        return Journal(self.path / name).lines()

    def open_sums(self, opening: Opening) -> None:
        """Write the sums that are about to be opened to disk before returning."""
        try:
            write_opening(self.path, opening)
        except OSError as error:
            raise unwritable(self.path, error) from None
        self.note_opening(opening)

    def note_opening(self, opening: Opening) -> None:
        """Record once that the sums of a round are opened."""
        round_ = opening.terms.round
        if round_ not in self.opened_rounds():
            self.note_opened(round_, opening.terms.attempt, opening.progress.cohort)

    def note_opened(self, number: int, attempt: int, nodes: list[int], **what: Any) -> None:
        """Append a line to openings.jsonl."""
        line = {"round": number, "attempt": attempt, "nodes": nodes, "time": round(time.time(), 3)}
        Journal(self.path / _OPENINGS).append(line | what, sync=True)

    def opened_cohort(self) -> list[int]:
        """Nodes of the sum that was opened last, whether or not its round counts."""
        return next((line["nodes"] for line in reversed(self.lines(_OPENINGS)) if line.get("nodes")), [])

    def opened_rounds(self) -> set[int]:
        """The numbers of all rounds whose sums were opened, or are being opened."""
        former = {  # as version 0.1 wrote them, which counted rounds from 1
            line["round"] - 1 for line in self.lines("events.jsonl") if line["event"] == "opening"
        }
        return former | {int(line["round"]) for line in self.lines(_OPENINGS)}

    def opening(self) -> Opening | None:
        """Sums that were being opened when the server stopped, or None."""
        return read_opening(self.path)

    def close_opening(self) -> None:
        """Remove the pending sums after they were used or given up."""
        drop_opening(self.path)

    def save(self, progress: RoundProgress, shared: Params, held: Params) -> None:
        """Write a new checkpoint, then remove the former one. A kill leaves one of the two, or both."""
        try:
            self._save(progress, shared, held)
        except OSError as error:
            raise unwritable(self.path, error) from None

    def _save(self, progress: RoundProgress, shared: Params, held: Params) -> None:
        with next_folder(self.path, _CHECKPOINT, progress.rounds_done, mode=0o700) as partial:
            StateToSave(shared, held).write(partial)
            write_atomically(partial / "progress.json", progress.model_dump_json() + "\n")

    def load(self) -> tuple[RoundProgress, SavedState] | None:
        """The latest checkpoint."""
        found = self._checkpoints()
        if not found:
            return None
        return read_model(found[-1] / "progress.json", RoundProgress), SavedState.read(found[-1])

    @property
    def progress(self) -> RoundProgress:
        """Progress in the latest checkpoint, without its tensors."""
        found = self._checkpoints()
        return read_model(found[-1] / "progress.json", RoundProgress) if found else RoundProgress()

    def _checkpoints(self) -> list[Path]:
        return numbered_folders(self.path, _CHECKPOINT)


def read_model(path: Path, kind: type[Read]) -> Read:
    """What a file of the folder says."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise RunError(f"{path} cannot be read: {error}", "restore the folder from a backup") from None


def _of_round() -> dict[str, str]:
    return {"round_id": current_round()} if current_round() else {}


def _check_continues(old: Bundle, new: Bundle) -> None:
    problems = {
        "another publisher": new.key != old.key,
        "another method or other options": any(
            getattr(new.manifest, name) != getattr(old.manifest, name)
            for name in ("method", "plugins", "options", "precision", "seed")
        ),
        "no later catalogue": new.manifest.catalogue_version <= old.manifest.catalogue_version,
        "items that are not the former ones and more": (
            [item.id for item in new.catalogue()][: old.manifest.items]
            != [item.id for item in old.catalogue()]
        ),
    }
    wrong = [what for what, is_so in problems.items() if is_so]
    if wrong:
        raise RunError(
            f"{new.path} does not continue {old.path}: {', '.join(wrong)}",
            "`solera bundle extend` makes a bundle that does",
        )
