"""A node's upload as the dense vector that masks hide, and the sum of such vectors as an upload.

All rows of all items are in it, touched or not, so that their pattern does not show; and the weights and the
number of users who trained, which nobody but the sum tells.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import AnyMethod, ClosedForm, Contribution
from solera.core.errors import ConfigError
from solera.core.fixed_point import (
    ROW_WEIGHTS,
    USERS,
    WEIGHT,
    FixedPoint,
    change,
    is_half,
    lengths,
    sum_blocks,
)
from solera.core.leaf import Params
from solera.core.method import Method
from solera.core.types import Floats
from solera.core.upload import Sums, Totals
from solera.engine.one_round import Sum
from solera.federation.common.protocol import Reason, RefusalError
from solera.federation.common.uploads import check_largest, norm_of
from solera.federation.secure.influence import BUCKETS, histogram
from solera.privacy.secagg import Encoding, Part

Values = dict[str, Floats]
PEAKS = "peaks"  # the part with the histogram of users' peaks
MAX_NUMBERS = 1 << 26  # of one upload: 256 MiB at 32 bits


def encoding_of(
    method: AnyMethod, n_items: int, fixed: FixedPoint, *, members: int, capacity: int
) -> Encoding:
    """Encoding of uploads for this many nodes with at most `capacity` users each."""
    check_size(method, n_items)
    whole = {ROW_WEIGHTS: fixed.heaviest, WEIGHT: fixed.heaviest, USERS: capacity, PEAKS: capacity}
    parts = tuple(
        Part(name=name, length=length, clip=whole.get(name, fixed.largest), fraction_bits=fixed.fraction_bits)
        if name not in whole
        else Part(name=name, length=length, clip=whole[name], fraction_bits=0)
        for name, length in _parts(method, n_items).items()
    )
    return Encoding(clients=members, parts=parts, bits=fixed.bits)


def check_size(method: AnyMethod, n_items: int) -> None:
    """Refuse a catalogue whose dense uploads do not fit into one message."""
    count = sum(lengths(method, n_items).values())
    if count > MAX_NUMBERS:
        raise ConfigError(
            f"{method.name!r} with {n_items:,} items has {count:,} values to mask; the limit is "
            f"{MAX_NUMBERS:,}",
            "use a method with fewer values per item, or omit --secure-aggregation",
        )


def _parts(method: AnyMethod, n_items: int) -> dict[str, int]:
    peaks = {} if method.rounds_needed == 1 else {PEAKS: BUCKETS}  # a method of one round has no next bound
    return lengths(method, n_items) | peaks


def values_of(
    method: AnyMethod, n_items: int, total: Totals | Sum | None, peaks: list[float]
) -> Mapping[str, Floats]:
    """A node's total by part, and the peaks of all its users who trained; zeros if nobody did."""
    found = {name: np.zeros(length) for name, length in _parts(method, n_items).items()}
    found[USERS][0] = len(peaks)
    if PEAKS in found:
        found[PEAKS][:] = histogram(peaks)
    if isinstance(total, Sum):
        assert method.one_round
        _put_sums(method, n_items, total, found)
    elif total is not None:
        sums = total.sums()
        rows = sums.rows.numpy()
        found[ROW_WEIGHTS][rows] = sums.row_weights.numpy()
        found[WEIGHT][0] = sums.weight
        per_item = {leaf.sent_as for leaf in method.leaves if leaf.per_item}
        for name, values in sums.changes.items():
            flat = found[change(name)]
            if name in per_item:
                flat.reshape(n_items, -1)[rows] = values.flatten(1).numpy()
            else:
                flat[:] = values.flatten().numpy()
    return found


def users_in(values: Mapping[str, Floats], most: int) -> int:
    """Number of users in a sum."""
    users = int(values[USERS][0])
    if not 0 < users <= most:
        raise RefusalError(Reason.NORM, f"the sum covers {users} users, but only {most} were asked")
    return users


def sums_of(method: Method, n_items: int, values: Mapping[str, Floats], max_norm: float) -> Sums:
    """The sum over all nodes as an upload. Nothing can be said of a single node's part in it."""
    users, weight, row_weights = values[USERS][0], float(values[WEIGHT][0]), values[ROW_WEIGHTS]
    most = users * (n_items if method.aggregate.weighted else 1)
    if not users <= weight <= most or row_weights.min() < 0 or row_weights.max() > weight:
        raise RefusalError(Reason.NORM, f"the weight {weight:g} is too large for {users:g} users")
    rows = torch.from_numpy(np.flatnonzero(row_weights))
    changes = changes_of(method, n_items, values, rows)
    sums = Sums(rows, torch.from_numpy(row_weights)[rows], weight, changes)
    if sums.length > max_norm * weight:
        raise RefusalError(Reason.NORM, f"norm {sums.length / weight:.3g} per user, at most {max_norm:g}")
    return sums


def changes_of(method: Method, n_items: int, values: Mapping[str, Floats], rows: Tensor) -> Params:
    """The changes of every leaf, of some rows."""
    changes: Params = {}
    for leaf in (leaf for leaf in method.leaves if leaf.sent_as):
        flat = torch.from_numpy(values[change(leaf.sent_as)])
        whole = flat.view(n_items, *leaf.shape)[rows] if leaf.per_item else flat.view(leaf.shape)
        changes[leaf.sent_as] = whole
    return changes


def contribution_of(
    method: ClosedForm, n_items: int, values: Mapping[str, Floats], max_norm: float | None
) -> Contribution:
    """The same of a method of one round; under noise, there is no telling how long it may be."""
    blocks = {name: np.zeros(c.shape(n_items)) for name, c in method.update.sums.items()}
    for name, of, row, column in sum_blocks(method):
        block = blocks[of][row, :, column]
        if is_half(method, of, row, column):
            begin = 0
            for item in range(n_items):
                block[item, item:] = values[name][begin : begin + n_items - item]
                block[item:, item] = block[item, item:]
                begin += n_items - item
        else:
            block[:] = values[name].reshape(n_items, -1)
    if max_norm is None:
        return Contribution(np.arange(n_items), blocks)
    norm = norm_of(method, blocks)
    check_largest(method, blocks, int(values[USERS][0]))
    if norm > max_norm * values[USERS][0]:
        raise RefusalError(
            Reason.NORM, f"norm {norm:.3g} exceeds what the users' clipped updates can add up to"
        )
    return Contribution(np.arange(n_items), blocks)


def _put_sums(method: ClosedForm, n_items: int, total: Sum, found: Values) -> None:
    blocks = total.of(np.arange(n_items)).blocks
    for name, of, row, column in sum_blocks(method):
        block = blocks[of][row, :, column]
        if is_half(method, of, row, column):
            np.concatenate([block[item, item:] for item in range(n_items)], out=found[name])
        else:
            found[name][:] = block.ravel()
