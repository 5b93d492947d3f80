"""Uploads as named arrays, and the checks an array has to pass before anything is computed with it.

Three forms, by what the method's server needs:

sums       most methods: the total over the node's users, of the rows that any of them touched
single     tables mixed of single clients' (FedEM and its like), or uploads that are sifted (`robust`):
           every user's changes, one after the other
matrices   methods of one round: the total of the users' sums, for the items that any of them knows

Names, shapes and types follow from the method's declarations alone; there is no way to send anything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from solera.core.closed_form import AnyMethod, ClosedForm, Contribution
from solera.core.fixed_point import change, sum_blocks
from solera.core.leaf import Leaf, Params
from solera.core.method import Method
from solera.core.types import Floats, Ints
from solera.core.upload import Sums, Upload
from solera.device.tensors import Arrays
from solera.federation.common.protocol import Reason, RefusalError

ROWS, ROW_WEIGHTS, WEIGHT, COUNTS, SIZES, ITEMS = (
    "rows",
    "row_weights",
    "weight",
    "row_counts",
    "sizes",
    "items",
)
_WHOLE = np.dtype("<i4")
Shape = tuple[int | str, ...]  # a letter stands for a length that the arrays must agree on


@dataclass(frozen=True)
class Bounds:
    """Bounds that an upload must satisfy."""

    n_items: int
    clients: int  # who trained
    max_norm: float  # of one client's changes, L2
    dtype: np.dtype[Any]
    alike: bool = False  # every client counts 1, whatever the method says
    largest: float = math.inf  # number of one client's changes


def declared(method: AnyMethod, dtype: np.dtype[Any]) -> dict[str, tuple[np.dtype[Any], Shape]]:
    """Every array of an upload: its type and shape, with r rows, c clients, m items."""
    if method.one_round:
        sums = method.update.sums
        blocks: dict[str, tuple[np.dtype[Any], Shape]] = {
            name: (dtype, ("m", sums[of].width or "m")) for name, of, *_ in sum_blocks(method)
        }
        return {ITEMS: (_WHOLE, ("m",)), **blocks}
    if not method.sums_alone:
        fixed: dict[str, tuple[np.dtype[Any], Shape]] = {
            ROWS: (_WHOLE, ("r",)),
            COUNTS: (_WHOLE, ("c",)),
            SIZES: (_WHOLE, ("c",)),
        }
    else:
        fixed = {ROWS: (_WHOLE, ("r",)), ROW_WEIGHTS: (dtype, ("r",)), WEIGHT: (dtype, (1,))}
    return fixed | {change(leaf.sent_as): (dtype, _shape(method, leaf)) for leaf in _sent(method)}


def pack_sums(sums: Sums, dtype: np.dtype[Any]) -> Arrays:
    """Pack the sum of the uploads of a node's users."""
    arrays = {
        ROWS: sums.rows.numpy().astype(_WHOLE),
        ROW_WEIGHTS: sums.row_weights.numpy().astype(dtype),
        WEIGHT: np.array([sums.weight], dtype),
    }
    return arrays | _changes(sums.changes, dtype)


def pack_single(sizes: Ints, uploads: list[Upload], dtype: np.dtype[Any]) -> Arrays:
    """Pack the changes of every user, one after the other."""
    rows, counts = (torch.cat([getattr(each, name) for each in uploads]) for name in (ROWS, COUNTS))
    changes = {name: torch.cat([each.changes[name] for each in uploads]) for name in uploads[0].changes}
    arrays = {name: values.numpy().astype(_WHOLE) for name, values in ((ROWS, rows), (COUNTS, counts))}
    return arrays | {SIZES: sizes.astype(_WHOLE)} | _changes(changes, dtype)


def pack_matrices(method: ClosedForm, total: Contribution, dtype: np.dtype[Any]) -> Arrays:
    """Pack the total of the users' matrices."""
    arrays = {
        name: np.ascontiguousarray(total.blocks[of][row, :, column], dtype)
        for name, of, row, column in sum_blocks(method)
    }
    return {ITEMS: total.items.astype(_WHOLE)} | arrays


def unpack_sums(method: Method, arrays: Mapping[str, NDArray[Any]], bounds: Bounds) -> Sums:
    """Check and read what `pack_sums` made."""
    _check(method, arrays, bounds)
    rows, row_weights = arrays[ROWS].astype(np.int64), arrays[ROW_WEIGHTS].astype(np.float64)
    weight = float(arrays[WEIGHT][0])
    _ascending(rows, bounds.n_items)
    weighted = method.aggregate.weighted and not bounds.alike
    most = bounds.clients * (bounds.n_items if weighted else 1)
    exact = weighted or weight == bounds.clients
    rounded = weight * (1 + 1e-6)
    if not (0 < weight <= most and exact) or (len(rows) and not 0 < row_weights.min() <= rounded):
        raise RefusalError(Reason.NORM, f"the weight {weight:g} is too large for {bounds.clients} users")
    if len(rows) and row_weights.max() > rounded:
        raise RefusalError(Reason.NORM, "the weight of a row exceeds that of all users together")
    changes = _params(method, arrays)
    sums = Sums(torch.from_numpy(rows), torch.from_numpy(row_weights), weight, changes)
    if sums.length > bounds.max_norm * weight:
        raise RefusalError(
            Reason.NORM, f"norm {sums.length / weight:.3g} per user, at most {bounds.max_norm:g}"
        )
    _check_peak(sums.peak(_sent(method)), bounds)
    return sums


def unpack_single(method: Method, arrays: Mapping[str, NDArray[Any]], bounds: Bounds) -> tuple[Ints, Upload]:
    """Check and read what `pack_single` made: the users' numbers of training items, and their uploads."""
    _check(method, arrays, bounds)
    rows, counts, sizes = (arrays[name].astype(np.int64) for name in (ROWS, COUNTS, SIZES))
    if len(counts) != bounds.clients or counts.min() < 0 or counts.sum() != len(rows):
        raise RefusalError(Reason.SHAPES, f"{len(rows)} rows were sent for {bounds.clients} users")
    if not 0 < sizes.min() <= sizes.max() <= bounds.n_items:
        raise RefusalError(
            Reason.NORM, "a user's number of items is below 1 or above the size of the catalogue"
        )
    for mine in np.split(rows, np.cumsum(counts)[:-1]):
        _ascending(mine, bounds.n_items)
    changes = _params(method, arrays)
    squares = torch.zeros(bounds.clients, dtype=torch.float64)
    owner = torch.from_numpy(np.repeat(np.arange(bounds.clients), counts))
    for leaf in _sent(method):
        each = changes[leaf.sent_as].double().square().flatten(1).sum(1)
        squares = squares.index_add(0, owner, each) if leaf.per_item else squares + each
    norm = float(squares.max()) ** 0.5
    if norm > bounds.max_norm:
        raise RefusalError(Reason.NORM, f"norm {norm:.3g}, at most {bounds.max_norm:g}")
    upload = Upload(torch.from_numpy(rows), torch.from_numpy(counts), changes)
    _check_peak(float(upload.peaks(_sent(method)).max()), bounds)
    return sizes, upload


def unpack_matrices(method: ClosedForm, arrays: Mapping[str, NDArray[Any]], bounds: Bounds) -> Contribution:
    """Check and read what `pack_matrices` made."""
    _check(method, arrays, bounds)
    items = arrays[ITEMS].astype(np.int64)
    _ascending(items, bounds.n_items)
    blocks = {name: np.zeros(c.shape(len(items))) for name, c in method.update.sums.items()}
    for name, of, row, column in sum_blocks(method):
        blocks[of][row, :, column] = arrays[name]
    norm = norm_of(method, blocks)
    if norm > bounds.max_norm * bounds.clients:
        raise RefusalError(
            Reason.NORM, f"norm {norm / bounds.clients:.3g} per user, at most {bounds.max_norm:g}"
        )
    if not bounds.alike:
        check_largest(method, blocks, bounds.clients)
    return Contribution(items, blocks)


def check_largest(method: ClosedForm, blocks: Mapping[str, Floats], clients: int) -> None:
    """Refuse sums that are too large for this many clients."""
    for name, block in blocks.items():
        most = method.update.sums[name].largest * clients
        found = float(np.abs(block).max(initial=0.0))
        if found > most * (1 + 1e-6):
            raise RefusalError(
                Reason.NORM, f"{name} is {found:.3g}; for {clients} users it is at most {most:g}"
            )


def norm_of(method: ClosedForm, blocks: Mapping[str, Floats]) -> float:
    """Of all sums together; that of a sketch of ±1 is √width times that of its matrix, on average."""
    widths = {name: each.width or 1 for name, each in method.update.sums.items()}
    return math.sqrt(sum(float(np.square(block).sum()) / widths[name] for name, block in blocks.items()))


def check_arrays(
    wanted: Mapping[str, tuple[np.dtype[Any], Shape]], arrays: Mapping[str, NDArray[Any]]
) -> dict[str, int]:
    """Names, types, shapes and finiteness; the lengths that letters stand for."""
    if arrays.keys() != wanted.keys():
        more, less = sorted(arrays.keys() - wanted.keys()), sorted(wanted.keys() - arrays.keys())
        said = f"not declared: {', '.join(more)}"[:200] if more else f"missing: {', '.join(less)}"
        raise RefusalError(Reason.NAMES, said)
    lengths: dict[str, int] = {}
    for name, (dtype, shape) in wanted.items():
        values = arrays[name]
        known = tuple(lengths.get(n, -1) if isinstance(n, str) else n for n in shape)
        fits = len(values.shape) == len(shape) and all(
            want in (-1, have) for want, have in zip(known, values.shape, strict=True)
        )
        if not fits or values.dtype != dtype:
            said = f"{name} is {values.dtype}{list(values.shape)}, not {dtype}{list(shape)}"
            raise RefusalError(Reason.SHAPES, said)
        lengths |= {n: have for n, have in zip(shape, values.shape, strict=True) if isinstance(n, str)}
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise RefusalError(Reason.NOT_FINITE, f"{name} has values that are not finite")
    return lengths


def _check_peak(peak: float, bounds: Bounds) -> None:
    if peak > bounds.largest * (1 + 1e-6):  # users cut off at the bound, then round to what is sent
        raise RefusalError(
            Reason.NORM, f"a value of {peak:.3g} per user, at most {bounds.largest:.3g} is allowed"
        )


def _check(method: AnyMethod, arrays: Mapping[str, NDArray[Any]], bounds: Bounds) -> None:
    check_arrays(declared(method, bounds.dtype), arrays)


def _ascending(rows: Ints, n_items: int) -> None:
    if len(rows) and (rows[0] < 0 or rows[-1] >= n_items or (np.diff(rows) <= 0).any()):
        raise RefusalError(Reason.SHAPES, f"rows are not ascending item numbers below {n_items}")


def _sent(method: Method) -> tuple[Leaf, ...]:
    return tuple(leaf for leaf in method.leaves if leaf.sent_as)


def _shape(method: Method, leaf: Leaf) -> Shape:
    if leaf.per_item:
        return ("r", *leaf.shape)
    return leaf.shape if method.sums_alone else ("c", *leaf.shape)


def _changes(changes: Params, dtype: np.dtype[Any]) -> Arrays:
    return {change(name): values.numpy().astype(dtype) for name, values in changes.items()}


def _params(method: Method, arrays: Mapping[str, NDArray[Any]]) -> Params:
    return {leaf.sent_as: torch.from_numpy(arrays[change(leaf.sent_as)].copy()) for leaf in _sent(method)}
