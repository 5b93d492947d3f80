"""Data of single rounds of a recorded run, for figures: small files recorded/round-00007.safetensors.

Round 0 is before the first. Every file holds, for some users who are spread evenly by activity:

users, vectors           their numbers, the least active first, and their vectors after the round

skew/users               those of them who took part, if the method scores by a dot product and the server
                         sees single uploads, and of each of them, in the terms of `core.skew`:
skew/norms               [users, 5] the norms of gradient, skew, scaling, shift and calibration,
skew/vectors             [users, d] learning rate times skew,
skew/deviations          [users, 4] own, shared, deviation and limit

Rounds 1, 2, 5, 10, 20, 50, … and the last one also hold, if the method has it:

upload/client, /rows     one client, as close to median activity as possible, and the items it sent
upload/NAME/before       these rows of the table NAME as the server had them,
upload/NAME/change       and the change that arrived
merging/users, /items    the weights ρ [users, items] of the shared table in the round's merge,
merging/values           for items that are spread evenly by popularity, the most popular first
mixing/users, /values    the weights [users, users] by which the server mixed their tables
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from solera.core.arrays import Ints
from solera.core.errors import RunError

FOLDER = "recorded"
Arrays = dict[str, NDArray[Any]]


def recorded_rounds(run: Path) -> dict[int, Arrays]:
    """The recorded data of a run's rounds, by round number; empty if it was not recorded."""
    return {int(path.stem.removeprefix("round-")): _read(path) for path in _files(run)}


def is_recorded(run: Path) -> bool:
    """Whether the run in this folder was recorded."""
    return bool(_files(run))


def file_of(run: Path, round_: int) -> Path:
    """The path of a round's file."""
    return run / FOLDER / f"round-{round_:05d}.safetensors"


def spread(ordered: Ints, count: int) -> Ints:
    """Up to `count` evenly spaced elements of an ordered array, including the first and the last."""
    places = np.linspace(0, len(ordered) - 1, min(count, len(ordered))).astype(np.int64)
    return ordered[places]


def by_activity(sizes: Ints) -> Ints:
    """The users who have training items, those with the fewest first."""
    order = np.argsort(sizes, kind="stable")
    return order[sizes[order] > 0]


def middling(sizes: Ints) -> int:
    """The user with median activity, whose tables and uploads are shown."""
    order = by_activity(sizes)
    return int(order[len(order) // 2])


def _files(run: Path) -> list[Path]:
    found = (run / FOLDER).glob("round-*.safetensors")
    return sorted(path for path in found if path.stem.removeprefix("round-").isdigit())


def _read(path: Path) -> Arrays:
    try:
        arrays: Arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{path} cannot be read: {error}", f"remove {path.parent}, or train again") from None
    return arrays
