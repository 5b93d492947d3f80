"""Linear algebra of closed forms."""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 256  # rows taken at a time
_LOW = 1 / 3  # rank, in items, up to which the factors of a matrix beat the matrix itself
_ZERO = 1e-10  # what is left of the largest diagonal where nothing is left


def without_diagonal(gram: Tensor, reg: float) -> Tensor:
    """EASE's B = I − P · diag(1 / diag P) with P = (gram + reg · I)⁻¹. May overwrite the matrix."""
    precision = ridge_inverse(gram, reg)
    weights = precision.div_(-precision.diagonal().clone())  # divides column j by −P_jj
    weights.diagonal().zero_()
    return weights


def ridge_inverse(gram: Tensor, reg: float) -> Tensor:
    """(gram + reg · I)⁻¹ of a symmetric matrix without negative eigenvalues, which may be overwritten.

    A sum over few clients is of low rank: with gram = LᵀL it is (I − Lᵀ(reg · I + LLᵀ)⁻¹L) / reg, which takes
    a fraction of the time where there are far fewer clients than items.
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
    """L [rank, n] with gram = LᵀL, or None if the rank is no small part of n.

    Takes the rows with the largest diagonals of what is left, some at a time, until nothing is left.
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
