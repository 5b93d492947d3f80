"""Data of a node's training: users, received arrays, and the resulting total."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from solera.core.closed_form import NEIGHBOURS, AnyMethod
from solera.core.errors import DeviceError
from solera.core.leaf import Home
from solera.core.types import Ints
from solera.core.upload import Totals, Upload
from solera.data.ragged import Ragged
from solera.device.tensors import Arrays
from solera.engine.one_round import Sum
from solera.federation.common.protocol import Order
from solera.federation.common.uploads import Shape

Total = Totals | Sum | list[Upload] | None  # of a node's users; single uploads where the server needs them
_IDS = np.dtype("<i4")
SHARED, OWN = "shared/", "own/"  # before the names of arrays that a server sends to all, or to every user


@dataclass(frozen=True)
class Cohort:
    """The users who train in a round."""

    places: list[int]  # among those the server asked for
    users: list[str]
    numbers: Ints  # by which they draw
    histories: Ragged


@dataclass(frozen=True)
class Work:
    """What a round's users have to send together, and what each of them keeps."""

    total: Total
    kept: dict[str, Arrays]
    peaks: list[float]  # the largest number of each, in what they send


def without_last(histories: Ragged) -> Ragged:
    """Histories without their last item, where there are at least two."""
    lengths = histories.lengths
    last = np.zeros(len(histories.values), dtype=bool)
    last[histories.offsets[1:][lengths > 1] - 1] = True
    kept = Ragged.of_lengths(lengths - (lengths > 1), histories.values[~last])
    return kept if histories.days is None else replace(kept, days=histories.days[~last])


def arrays_to_nodes(
    method: AnyMethod, n_items: int, dtype: np.dtype[Any], round_: int | None
) -> dict[str, tuple[np.dtype[Any], Shape]]:
    """What a server sends: every shared leaf that is not derived from others; s slots."""
    if method.one_round:
        shapes = method.shared_shapes(n_items) if round_ is None else {}
        return {
            SHARED + name: (_IDS if name == NEIGHBOURS else dtype, shape) for name, shape in shapes.items()
        }
    wanted: dict[str, tuple[np.dtype[Any], Shape]] = {}
    for leaf in method.select(home=Home.SHARED):
        shape: Shape = (n_items, *leaf.shape) if leaf.per_item else leaf.shape
        if leaf.derived_from:
            continue
        if leaf.name in method.tailored:
            wanted[OWN + leaf.name] = (dtype, ("s", *shape))
        else:
            wanted[SHARED + leaf.name] = (dtype, shape)
    return wanted


def deployable(method: AnyMethod) -> None:
    """Refuse a method whose clients need information that the server does not send."""
    if method.popularity_power:
        raise DeviceError(
            f"{method.name!r} draws negatives by popularity, which a device does not know",
            "use the method without popular-negatives",
        )
    if not method.one_round and method.aggregate.held:
        raise DeviceError(
            f"the server of {method.name!r} draws users by their vectors, but a federation draws nodes",
            "use the method without sending user vectors, for fedfast -o users=kept",
        )


def noted(order: Order) -> tuple[str, ...]:
    """Processing steps that an order applies to uploads, for the outbox."""
    given = (("clip", order.clip), ("bound", order.bound))
    return tuple(f"{name} {value:g}" for name, value in given if value)
