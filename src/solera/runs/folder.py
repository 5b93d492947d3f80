"""A run on disk: a folder of JSON and safetensors files, each written atomically.

config.json           the settings
environment.json      machine and versions
history.jsonl         one line per finished round
result.json           the metrics, once the run is finished
shared.safetensors    the server's state in the selected round
personal.safetensors  the clients' state in the selected round
checkpoint-N/         while it runs: the state after round N, to resume from
data.parquet          the interactions, if they were a table in memory that cannot be loaded again
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from solera.core.errors import RunError
from solera.core.files import (
    next_folder,
    numbered_folders,
    remove_folder,
    replacing_file,
    write_atomically,
)
from solera.core.frozen import Frozen
from solera.core.leaf import Params
from solera.core.tensor_files import Writable, write_tensors
from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.runs.result import RoundEntry, RunResult
from solera.runs.settings import RunConfig

_CHECKPOINT = "checkpoint-"
_FIRST = "environment.json"  # the first file of a new run
_DATA = "data.parquet"
Content = TypeVar("Content", bound=BaseModel)


@dataclass(frozen=True)
class SavedState:
    """Shared and personal state as named tensors."""

    shared: Params
    personal: Params

    @classmethod
    def read(cls, folder: Path, prefix: str = "") -> SavedState:
        """Read the files that `StateToSave.write` wrote."""
        try:
            shared = load_file(folder / f"{prefix}shared.safetensors")
            personal = load_file(folder / f"{prefix}personal.safetensors")
            return cls(shared, personal)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise RunError(
                f"the state in {folder} cannot be read: {error}", "train again into a new folder"
            ) from None


class StateToSave(NamedTuple):
    """Shared and personal state, possibly in pieces, to be read again as `SavedState`."""

    shared: Writable
    personal: Writable

    def write(self, folder: Path, prefix: str = "") -> None:
        """Write both states to two files in `folder`."""
        for name, tensors in (("shared", self.shared), ("personal", self.personal)):
            write_tensors(folder / f"{prefix}{name}.safetensors", tensors)


class RunProgress(Frozen):
    """The progress of an unfinished run."""

    rounds_done: int
    best_round: int
    history: tuple[RoundEntry, ...]


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of an unfinished run."""

    progress: RunProgress
    last: SavedState
    best: SavedState


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: RunConfig, environment: Mapping[str, Any]) -> RunFolder:
        """Create the folder of a new run.

        Raises an error if the folder is not empty, unless it has only the file that is written first.
        """
        if path.exists() and (not path.is_dir() or any(each.name != _FIRST for each in path.iterdir())):
            what = "another run" if (path / "config.json").exists() else "something that is not a run"
            raise RunError(
                f"{path} already contains {what}", "give another --out, or --resume to continue it"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path} cannot be created: {error.strerror}", "give another --out") from None
        folder = cls(path)
        folder._write(_FIRST, environment)
        folder._write("config.json", config.model_dump(mode="json"))
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a folder that holds a run."""
        if not (path / "config.json").is_file():
            raise RunError(
                f"{path} contains no run", "give the folder that `solera train` printed at its end"
            )
        return cls(path)

    @property
    def config(self) -> RunConfig:
        """The run's settings."""
        return self._parse("config.json", RunConfig)

    @property
    def result(self) -> RunResult | None:
        """The metrics, or None while the run is unfinished."""
        if not (self.path / "result.json").exists():
            return None
        return self._parse("result.json", RunResult)

    def _parse(self, name: str, kind: type[Content]) -> Content:
        return self._checked(name, kind, self._read(name))

    def _checked(self, name: str, kind: type[Content], content: Any) -> Content:
        try:
            return kind.model_validate(content)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"])) or "all of it"
            raise RunError(
                f"{self.path / name} is not valid: {where}: {wrong['msg']}", "train again into a new folder"
            ) from None

    @property
    def environment(self) -> dict[str, Any]:
        """The machine and versions with which the run was started."""
        return self._read(_FIRST)

    @property
    def history(self) -> list[RoundEntry]:
        """Finished rounds. An incomplete last line is ignored."""
        path = self.path / "history.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            entries = [json.loads(line) for line in lines if line.endswith("\n")]
            return [self._checked("history.jsonl", RoundEntry, entry) for entry in entries]
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error}", "train again into a new folder") from None

    def keep_data(self, data: Interactions) -> None:
        """Save interactions that cannot be loaded again from elsewhere."""
        path = self.path / _DATA
        if not path.exists():
            with replacing_file(path) as partial:
                data.frame().write_parquet(partial)

    def data(self, data_dir: Path | None = None) -> Interactions:
        """Load the data set that the run was trained on."""
        config = self.config
        if (self.path / _DATA).exists():
            kept = load(self.path / _DATA, min_interactions=0)
            return replace(kept, name=config.dataset, origin=None)
        return config.load_data(data_dir)

    def begin_history(self, rounds: Iterable[RoundEntry]) -> None:
        """Replace the history by the rounds to continue from."""
        write_atomically(self.path / "history.jsonl", "".join(map(_line, rounds)))

    def add_round(self, entry: RoundEntry) -> None:
        """Append a finished round. Checkpoints hold all rounds, so a lost line can be restored."""
        with (self.path / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(_line(entry))

    def write_checkpoint(self, progress: RunProgress, states: Iterable[StateToSave]) -> None:
        """Write a new checkpoint, then remove the former one. A kill leaves one of the two, or both.

        `states` gives the last and then the best one, so that only one of them has to be in memory.
        """
        with next_folder(self.path, _CHECKPOINT, progress.rounds_done) as partial:
            for prefix, state in zip(("last-", "best-"), states, strict=True):
                state.write(partial, prefix)
            RunFolder(partial)._write("progress.json", progress.model_dump(mode="json"))

    def read_checkpoint(self) -> Checkpoint | None:
        """The latest checkpoint, if there is any."""
        found = self._checkpoints()
        if not found:
            return None
        latest = found[-1]
        progress = RunFolder(latest)._parse("progress.json", RunProgress)
        last, best = (SavedState.read(latest, prefix) for prefix in ("last-", "best-"))
        return Checkpoint(progress, last, best)

    def finish(self, result: RunResult, state: StateToSave) -> None:
        """Write state and result. The result is written last, so if it exists, the run is complete."""
        state.write(self.path)
        self._write("result.json", result.document())
        for old in self._checkpoints():
            remove_folder(old)

    def state(self) -> SavedState:
        """The state of the selected round."""
        if self.result is None:
            raise RunError(
                f"the run in {self.path} is not finished", f"solera train … --out {self.path} --resume"
            )
        return SavedState.read(self.path)

    def _checkpoints(self) -> list[Path]:
        return numbered_folders(self.path, _CHECKPOINT)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(
                f"{self.path / name} cannot be read: {error}", "train again into a new folder"
            ) from None
        return content

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        write_atomically(self.path / name, json.dumps(content, indent=2) + "\n")


def _line(entry: RoundEntry) -> str:
    return json.dumps(entry.model_dump(mode="json", exclude_none=True)) + "\n"
