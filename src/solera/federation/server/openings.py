"""Sums that are about to be opened, saved on the server's disk to survive a crash.

opening/
  opening.json     terms, tasks, who takes part, and what the masks are taken off with
  sum-N.bin        the masked sum of group N
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solera.core.errors import RunError
from solera.core.files import creating_folder, remove_folder, write_atomically
from solera.federation.common.protocol import Order
from solera.federation.secure.terms import RoundTerms
from solera.federation.server.round import Ledger
from solera.privacy.secagg.server import Opening as Kept

_FOLDER, _TEXT = "opening", "opening.json"


class RoundProgress(BaseModel):
    """Progress of a federation.

    `number` is that of the next round. It is above `rounds_done` if sums were opened and lost: a round's
    number is never used again.
    """

    model_config = ConfigDict(extra="forbid")

    rounds_done: int = 0
    number: int = 0
    bound: float | None = None  # largest number of one user's change, from the rounds so far
    cohort: list[int] = []  # nodes of the sum that was opened last
    ledger: Ledger = Ledger()


class OpeningGroup(BaseModel):
    """One group: its nodes, the state of its secure aggregation, the masked sum, and what nodes are sent."""

    model_config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    place: int
    nodes: list[int]
    kept: Kept
    total: Any = Field(default=None, exclude=True, description="a Ring, in a file of its own")
    requests: dict[int, bytes]


class Opening(BaseModel):
    """A round whose sums are about to be opened; `able` users might have been drawn, `wanted` were needed."""

    model_config = ConfigDict(extra="forbid")

    terms: RoundTerms
    orders: dict[int, Order]
    slots: dict[int, list[int]]
    progress: RoundProgress
    wanted: int
    able: int
    groups: list[OpeningGroup]


def write_opening(folder: Path, opening: Opening) -> None:
    """Write an opening to disk atomically."""
    remove_folder(folder / _FOLDER)  # of a round that was given up
    with creating_folder(folder / _FOLDER, mode=0o700) as partial:
        for group in opening.groups:
            write_atomically(partial / f"sum-{group.place}.bin", group.total.tobytes())
        write_atomically(partial / _TEXT, opening.model_dump_json())


def read_opening(folder: Path) -> Opening | None:
    """The opening that is on the disk, if there is one."""
    path = folder / _FOLDER
    if not path.exists():
        return None
    try:
        found = Opening.model_validate_json((path / _TEXT).read_bytes())
        for group in found.groups:
            encoding = group.kept.setup.encoding
            group.total = np.frombuffer((path / f"sum-{group.place}.bin").read_bytes(), encoding.dtype)
            if len(group.total) != encoding.length:
                raise ValueError(f"the sum of group {group.place} is incomplete")
    except (OSError, ValidationError, ValueError) as error:
        raise RunError(
            f"{path} cannot be read: {error}",
            "restore the folder from a copy; or delete it: its sums then count as opened and lost",
        ) from None
    return found


def drop_opening(folder: Path) -> None:
    """Delete an opening whose round is done or given up."""
    remove_folder(folder / _FOLDER)
