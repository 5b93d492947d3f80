"""Bounds on the size of uploads: on a client's whole change, and on its change of a row."""

from __future__ import annotations

import torch
from torch import Tensor

from solera.core.spec import Leaf, Params
from solera.core.upload import Upload


def bound_norms(upload: Upload, leaves: tuple[Leaf, ...], bound: float) -> Upload:
    """Limit every client's change to `bound` times the norm of the median client's."""
    owner = owners(upload)
    squares = _squares(upload, leaves, per_item=False)
    squares = squares.index_add(0, owner, _squares(upload, leaves, per_item=True))
    scale = _scale(squares.sqrt(), bound)
    return _scaled(upload, leaves, scale[owner], scale)


def cap_rows(upload: Upload, leaves: tuple[Leaf, ...], bound: float) -> Upload:
    """Limit every client's change of a row to `bound` times the typical size.

    The typical size is the median over clients of the root mean square over a client's rows. (The median row
    would be close to zero once most rows hardly change.) Leaves that are not per item count as one more row,
    with a median of their own.
    """
    squares = _squares(upload, leaves, per_item=True)
    counts = upload.row_counts.to(squares.device)
    means = squares.new_zeros(upload.n_clients).index_add(0, owners(upload), squares) / counts
    usual = means[counts > 0].median().sqrt() if len(squares) else squares.new_zeros(())
    fixed = _squares(upload, leaves, per_item=False).sqrt()
    return _scaled(upload, leaves, _scale(squares.sqrt(), bound, usual), _scale(fixed, bound))


def cut_peaks(upload: Upload, leaves: tuple[Leaf, ...], bound: float) -> Upload:
    """Limit every number of a client to `bound` times the median client's largest."""
    return upload.clipped(bound * float(upload.peaks(leaves).median()))


def owners(upload: Upload) -> Tensor:
    """The index of the client that sent each row."""
    places = torch.arange(upload.n_clients).repeat_interleave(upload.row_counts)
    return places.to(upload.rows.device)


def _squares(upload: Upload, leaves: tuple[Leaf, ...], *, per_item: bool) -> Tensor:
    """Squared norms of all rows, or of each client's leaves that are not per item, in double precision."""
    count = len(upload.rows) if per_item else upload.n_clients
    found = torch.zeros(count, dtype=torch.float64, device=upload.rows.device)
    for leaf in leaves:
        if leaf.per_item == per_item:
            found += upload.changes[leaf.sent_as].double().square().flatten(1).sum(1)
    return found


def _scale(norms: Tensor, bound: float, usual: Tensor | None = None) -> Tensor:
    limit = bound * (norms.median() if usual is None else usual)
    return torch.where(norms > limit, limit / norms, 1.0)


def _scaled(upload: Upload, leaves: tuple[Leaf, ...], rows: Tensor, clients: Tensor) -> Upload:
    changes: Params = {}
    for leaf in leaves:
        values = upload.changes[leaf.sent_as]
        factor = (rows if leaf.per_item else clients).to(values.dtype)
        changes[leaf.sent_as] = values * factor.view(-1, *[1] * len(leaf.shape))
    return Upload(upload.rows, upload.row_counts, changes)
