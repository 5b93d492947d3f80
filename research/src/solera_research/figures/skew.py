"""What averaging does to a client, in the terms of PFedCLR's and FedEM's lemmas, for a user vector p.

p scores items by ⟨p, q_i⟩ and is trained on binary cross-entropy with labels r_i. Q are the rows as the
client has trained them, G the rows that the server makes of all clients' rows, δ_i = g_i − q_i, and

    L1 = σ(⟨p, q_i⟩) − r_i,     L2 = σ'(⟨p, q_i⟩)

PFedCLR (Chen et al. 2025), of the gradient by p:

    gradient      Σ L1 q_i                                                      (Lemma 3.1)
    skew          that at G, less that at Q
    scaling       Σ L2 ⟨p, δ_i⟩ q_i      ⎫ their sum is the skew, up to ‖δ‖²    (Lemma 3.2)
    shift         Σ L1 δ_i               ⎭
    calibration   −η Σ (L1 L2 ‖p‖² q_i + L1² p)                                 (Lemma 4.1)
    accumulated   ‖Σ_t η skew_t‖ ≤ η Σ (C1 ‖δ_i‖ + C2 |⟨p, δ_i⟩| ‖q_i‖) / (1 − γ)   (Lemma 3.3)

with δ, p and q of the first round; γ is the factor by which ‖δ_i‖ grows in a round, C1 ≤ 1 and C2 ≤ 1/4.

FedEM (Chen et al. 2025), of the loss with a penalty μ/2 ‖Q‖², for fixed p; Q* is its minimum:

    own           A = ⟨∇L(Q), Q − Q*⟩
    shared        ⟨∇L(G), G − Q*⟩                                               (Lemma 1)
    deviation     C = ‖∇L(Q)‖ (‖Q − Q*‖ + ‖δ‖) + L ‖δ‖ (‖Q − Q*‖ + ‖δ‖)         (Lemma 2, with ρ = 1 in C)
    limit         A / (A + C), below which the merging weight ρ must stay

L = ‖p‖² / 4 + μ bounds the curvature. Lemma 1 says that `shared` may be negative. Under the lemma's own
assumption, a strongly convex loss, it never is: ⟨∇L(G), G − Q*⟩ ≥ μ ‖G − Q*‖².
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_HALVINGS = 100  # of the interval that has the minimum


class Skew(NamedTuple):
    """Vectors [d], as above."""

    gradient: Tensor
    skew: Tensor
    scaling: Tensor
    shift: Tensor
    calibration: Tensor


class Deviation(NamedTuple):
    """Numbers, as above."""

    own: float
    shared: float
    deviation: float
    limit: float


def user_skew(user: Tensor, own: Tensor, shared: Tensor, labels: Tensor, rate: float) -> Skew:
    """The terms of the gradient by a user vector [d], for own and shared rows [n, d] with labels [n]."""
    sigma = torch.sigmoid(own @ user)
    first, second = sigma - labels, sigma * (1 - sigma)
    apart = shared - own
    gradient = first @ own
    return Skew(
        gradient,
        (torch.sigmoid(shared @ user) - labels) @ shared - gradient,
        (second * (apart @ user)) @ own,
        first @ apart,
        -rate * ((first * second) @ own * user.square().sum() + first.square().sum() * user),
    )


def accumulated_bound(user: Tensor, own: Tensor, shared: Tensor, rate: float, growth: float) -> float:
    """Lemma 3.3 with C1 = 1 and C2 = 1/4; infinite if ‖δ‖ grows, `growth` ≥ 1."""
    apart = shared - own
    each = apart.norm(dim=1) + (apart @ user).abs() * own.norm(dim=1) / 4
    return rate * float(each.sum()) / (1 - growth) if growth < 1 else float("inf")


def local_optimum(user: Tensor, labels: Tensor, reg: float) -> Tensor:
    """Q* [n, d], the minimum of the loss with a penalty reg/2 ‖Q‖² for a fixed user vector.

    All rows are multiples of p: s p for positives and −s p for negatives, with reg · s = σ(−s ‖p‖²).
    """
    size = float(user.double().square().sum())
    low, high = 0.0, 0.5 / reg
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = reg * middle > 1 / (1 + torch.tensor(middle * size, dtype=torch.float64).exp())
        low, high = (low, middle) if above else (middle, high)
    return (2 * labels - 1).unsqueeze(1) * (low * user)


def deviation(user: Tensor, own: Tensor, shared: Tensor, labels: Tensor, reg: float) -> Deviation:
    """The quantities of FedEM's lemmas, for own and shared rows [n, d] with labels [n]."""

    def slope(rows: Tensor) -> Tensor:
        return (torch.sigmoid(rows @ user) - labels).unsqueeze(1) * user + reg * rows

    best = local_optimum(user, labels, reg).to(own)
    of_own, curvature = slope(own), float(user.square().sum()) / 4 + reg
    towards = float((of_own * (own - best)).sum())
    far, apart = float((own - best).norm()), float((shared - own).norm())
    bound = float(of_own.norm()) * (far + apart) + curvature * apart * (far + apart)
    return Deviation(
        towards, float((slope(shared) * (shared - best)).sum()), bound, towards / max(towards + bound, 1e-300)
    )
