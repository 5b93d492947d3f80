"""What a served federation remembers between looks, in serving.json; `solera federation status` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solera.core.errors import RunError
from solera.core.files import PRIVATE, write_atomically

_FILE = "serving.json"
LOCK = "serving.lock"  # held by the app while it serves
State = Literal["waiting", "quiet", "too few nodes", "training", "evaluating", "canary", "spent", "stopped"]


class Serving(BaseModel):
    """Where the loop is. Times are seconds since 1970."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    state: State = "waiting"
    born: float  # when serving began
    beat: float = 0.0  # when the loop last looked
    last_start: float | None = None  # of the last run that was due, also of one that was skipped
    next_due: float | None = None
    until: int | None = None  # rounds to be done by the run under way
    last_success: float | None = None  # when a run of rounds last reached its end
    failures: int = 0  # runs in a row that failed
    online: int = 0
    smallest_cohort: int = 0
    evaluations: int = 0
    evaluation_epsilon: float = 0.0  # in all, of a user who was asked each time
    told: dict[int, int] = Field(default_factory=dict)  # the version that each node has confirmed

    @classmethod
    def read(cls, folder: Path) -> Serving | None:
        """What is on the disk; None if the federation was never served."""
        path = folder / _FILE
        if not path.exists():
            return None
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise RunError(
                f"{path} cannot be read: {error}", "restore it from a backup, or delete it"
            ) from None

    def write(self, folder: Path) -> None:
        """Replace the file."""
        write_atomically(folder / _FILE, self.model_dump_json(indent=2) + "\n", PRIVATE)
