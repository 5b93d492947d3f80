"""Sums that are about to be opened, saved on the server's disk to survive a crash.

opening/
  opening.json     terms, tasks, who takes part, and what the masks are taken off with
  sum-N.bin        the masked sum of group N
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from solera.core.errors import RunError
from solera.core.files import creating_folder, remove_folder, write_atomically
from solera.federation.common.protocol import Order
from solera.federation.secure.terms import RoundTerms
from solera.federation.server.node_ledger import Ledger
from solera.privacy.secagg.primitives import Ring
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


@dataclass(frozen=True)
class OpeningGroup:
    """One group: its nodes, the state of its secure aggregation, the masked sum, and what nodes are sent."""

    place: int
    nodes: list[int]
    kept: Kept
    total: Ring
    requests: dict[int, bytes]


@dataclass(frozen=True)
class Opening:
    """A round whose sums are about to be opened; `able` users might have been drawn, `wanted` were needed."""

    terms: RoundTerms
    orders: dict[int, Order]
    slots: dict[int, list[int]]
    progress: RoundProgress
    wanted: int
    able: int
    groups: list[OpeningGroup]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    place: int
    nodes: list[int]
    kept: Kept
    requests: dict[int, bytes]


class _Text(BaseModel):
    model_config = ConfigDict(extra="forbid")

    terms: RoundTerms
    orders: dict[int, Order]
    slots: dict[int, list[int]]
    progress: RoundProgress
    wanted: int
    able: int
    groups: list[_Group]


def write_opening(folder: Path, opening: Opening) -> None:
    """Write an opening to disk atomically."""
    text = _Text(
        terms=opening.terms,
        orders=opening.orders,
        slots=opening.slots,
        progress=opening.progress,
        wanted=opening.wanted,
        able=opening.able,
        groups=[
            _Group(place=each.place, nodes=each.nodes, kept=each.kept, requests=each.requests)
            for each in opening.groups
        ],
    )
    remove_folder(folder / _FOLDER)  # of a round that was given up
    with creating_folder(folder / _FOLDER, mode=0o700) as partial:
        for group in opening.groups:
            write_atomically(partial / f"sum-{group.place}.bin", group.total.tobytes())
        write_atomically(partial / _TEXT, text.model_dump_json())


def read_opening(folder: Path) -> Opening | None:
    """The opening that is on the disk, if there is one."""
    path = folder / _FOLDER
    if not path.exists():
        return None
    try:
        text = _Text.model_validate_json((path / _TEXT).read_bytes())
        return Opening(
            terms=text.terms,
            orders=text.orders,
            slots=text.slots,
            progress=text.progress,
            wanted=text.wanted,
            able=text.able,
            groups=[_group(path, each) for each in text.groups],
        )
    except (OSError, ValidationError, ValueError) as error:
        raise RunError(
            f"{path} cannot be read: {error}",
            "restore the folder from a copy; or delete it: its sums then count as opened and lost",
        ) from None


def drop_opening(folder: Path) -> None:
    """Delete an opening whose round is done or given up."""
    remove_folder(folder / _FOLDER)


def _group(path: Path, each: _Group) -> OpeningGroup:
    encoding = each.kept.setup.encoding
    total: Any = np.frombuffer((path / f"sum-{each.place}.bin").read_bytes(), encoding.dtype)
    if len(total) != encoding.length:
        raise ValueError(f"the sum of group {each.place} is incomplete")
    return OpeningGroup(each.place, each.nodes, each.kept, total, each.requests)
