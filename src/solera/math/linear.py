"""Linear algebra for closed-form methods."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from solera.core.content import NO_PRIOR, AttributePrior
from solera.core.types import Floats, Ints

_BLOCK = 256  # rows per block
_LOW = 1 / 3  # rank, as a fraction of n, up to which the factors are faster than the full matrix
_ZERO = 1e-10  # residual that counts as zero, relative to the largest diagonal entry


def memory_scores(weights: Tensor, offsets: Ints, items: Ints, memory: Floats) -> Tensor:
    """Scores [histories, n_items] of histories in ragged form, whose items weigh `memory` [channels, …].

    The weights [channels · n_items, n_items] of its items are added up. A history has few of all items: this
    is faster than a product of matrices, and a score does not depend on who is scored at the same time.
    """
    channels = len(memory)
    places = items.astype(np.int64)[:, None] + np.arange(channels) * (len(weights) // channels)
    at, starts, by = (
        torch.from_numpy(np.ascontiguousarray(each)).to(weights.device)
        for each in (places.ravel(), offsets[:-1] * channels, memory.T.ravel())
    )
    return embedding_bag(at, weights, starts, mode="sum", per_sample_weights=by.to(weights.dtype))


def without_diagonal(gram: Tensor, reg: float, prior: AttributePrior = NO_PRIOR) -> Tensor:
    """EASE's B = I − P · diag(1 / diag P) with P = (gram + reg · I)⁻¹. May overwrite the matrix.

    With a penalty R instead of reg · I, from a prior, P = (gram + R)⁻¹ and B = P · gram − P · diag(g), where
    P · gram = I − P · R, and g makes the diagonal zero. An item that no user has is cold.
    """
    users = gram.diagonal().clone()
    if penalty := prior.ridge(gram):
        penalty.add_to(gram, reg)
        precision = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        weights = penalty.after(precision).mul_(-reg)
        weights.diagonal().add_(1.0)
        weights -= precision * (weights.diagonal() / precision.diagonal())
    else:
        precision = ridge_inverse(gram, reg)
        weights = precision.div_(-precision.diagonal().clone())  # divides column j by −P_jj
    weights.diagonal().zero_()
    weights = prior.spread(weights, users)
    weights.diagonal().zero_()
    return weights


def ridge_inverse(gram: Tensor, reg: float) -> Tensor:
    """(gram + reg · I)⁻¹ of a positive semi-definite matrix, which may be overwritten.

    A sum over few clients has low rank: with gram = LᵀL it is (I − Lᵀ(reg · I + LLᵀ)⁻¹L) / reg, which is much
    faster to compute if there are far fewer clients than items.
    """
    factor = low_rank_factor(gram)
    if factor is None:
        gram.diagonal().add_(reg)
        return torch.cholesky_inverse(torch.linalg.cholesky(gram))
    small = factor @ factor.T
    small.diagonal().add_(reg)
    half = torch.linalg.solve_triangular(torch.linalg.cholesky(small), factor, upper=False)
    inverse: Tensor = (half.T @ half).div_(-reg)
    inverse.diagonal().add_(1 / reg)
    return inverse


def low_rank_factor(gram: Tensor) -> Tensor | None:
    """L [rank, n] with gram = LᵀL, or None if the rank is not small compared with n.

    A blocked pivoted factorization: takes the rows with the largest residual diagonals until the residual is
    zero.
    """
    n = len(gram)
    left = gram.diagonal().clone()
    zero = _ZERO * left.max()
    factor = gram.new_zeros(0, n)
    while bool((left > zero).any()):
        if len(factor) > _LOW * n:
            return None
        rows = left.topk(min(_BLOCK, n)).indices
        rest = gram[rows] - factor[:, rows].T @ factor
        values, vectors = torch.linalg.eigh(rest[:, rows])
        kept = values > zero
        more = (vectors[:, kept] / values[kept].sqrt()).T @ rest
        factor = torch.cat([factor, more])
        left = (left - more.square().sum(0)).clamp_(min=0.0)
        left[rows] = 0.0
    return factor
