"""FedCIA: clients share which items are alike, and not the vectors that say so.

Han et al., "FedCIA: Federated Collaborative Information Aggregation for Privacy-Preserving Recommendation"
(SIGIR 2025), on matrix factorization.

    score(u, i) = ⟨p_u, q_ui⟩                       p_u and Q_u are both personal
    local:      Q_u ← T steps on ‖Q_u Q_uᵀ − S‖² / (2 ‖S‖), not in the first round; then p_u and Q_u ← steps
    sent:       S_u = Q_u Q_uᵀ, the similarity of all pairs of items
    server:     S ← mean over the round's clients of their S_u

S_u has items² numbers. Here a client sends the sketch S_u Ω, `sketch` numbers per item, where Ω is a public
matrix of ±1 (`math.sketch`). The mean Y of the sketches is the sketch of the mean, S Ω, and every client
takes S ≈ Y (ΩᵀY)⁻¹ Yᵀ. This is exact if the rank of S is at most `sketch`. The paper reduces traffic too:
there a client sends the first singular vectors of its own S_u.

A step towards S leads from Q to Q P + Y R with small matrices P and R, which need Q only through QᵀQ and
YᵀQ. So all T steps are taken on matrices of `sketch` and d rows, and the table is multiplied once.

Symbols: T is `align_steps`.

Differences from the public code:
- It sends S_u itself, or its first d singular vectors, with Laplace noise of scale 0.001. Noise is a setting
  of a run here.
- It trains on squared errors of the single products p_uk q_ik. Here the loss is binary cross-entropy, as in
  the comparison of FedEM.
- It steps on ‖Q_u Q_uᵀ − S‖_F. Such steps do not get smaller near the minimum, so they move clients apart
  that agree, as all do at first. The paper has the mean squared error. Here the squared error is divided by
  2 ‖S‖, so that the code's step size fits any number of items.
- It evaluates clients after the steps on S. Here a client takes them at the start of its next round, and is
  served with the table it has trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from solera.core.context import Batch, MethodConfig, RoundContext, Schedule, Scheduled
from solera.core.leaf import Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam, Aggregate, Move, Stage, Update, View
from solera.core.upload import Totals
from solera.math.sketch import of_items
from solera.methods.parts import BinaryCrossEntropy, Dot

ITEMS, SIMILARITY = "items", "similarity"
OF_OWN, OF_SIMILARITY = "aligned.own", "aligned.similarity"
_DAMPING = 1e-6  # of the small matrix that is inverted, in units of its trace


class FedCIAConfig(MethodConfig):
    """Defaults: the public code's with one user per client; the embedding size of FedEM's comparison."""

    embedding_size: int = Field(default=16, ge=1, description="length of user and item vectors")
    learning_rate: Scheduled = Field(
        default=Schedule(start=0.01), description="step size of user and item vectors"
    )
    sketch: int = Field(
        default=64, ge=1, le=4096, description="numbers sent per item, a sketch of similarities"
    )
    align_steps: int = Field(default=100, ge=0, description="T: steps towards the mean similarity per round")
    align_learning_rate: Scheduled = Field(
        default=Schedule(start=0.1), description="step size of these steps"
    )


class Aligned(NamedTuple):
    """Small matrices of the aligned table Q · own + Y · other."""

    own: Tensor  # [..., d, d]
    other: Tensor  # [..., sketch, d]


@dataclass(frozen=True)
class AlignedTable(View):
    """A personal table that is moved towards the mean similarity before it is trained."""

    embedding_size: int
    sketch: int
    label: str = "personal table, aligned with the mean similarity"
    settles: str = ITEMS
    reports: tuple[str, ...] = (SIMILARITY,)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The personal table, and the sketch of the similarity."""
        return (
            Leaf(ITEMS, (self.embedding_size,), Home.PERSONAL, per_item=True),
            Leaf(SIMILARITY, (self.sketch,), Home.SHARED, Init.ZEROS, per_item=True, upload=True),
        )

    def see(self, params: Params) -> Tensor:
        return params[ITEMS]

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        return {ITEMS: slope}

    def prepare(self, tables: Params, context: RoundContext) -> Params:
        hyper = context.hyper
        steps = Steps(int(hyper["align_steps"]), hyper["align_learning_rate"], hyper["reg"])
        found = aligned(tables[ITEMS], tables[SIMILARITY], steps)
        return {OF_OWN: found.own, OF_SIMILARITY: found.other}

    def settle(self, params: Params) -> Tensor:
        return params[ITEMS] @ params[OF_OWN] + params[SIMILARITY] @ params[OF_SIMILARITY]

    def report(self, tables: Params) -> Params:
        table = tables[ITEMS]
        test = _test_matrix(table.shape[-2], self.sketch).to(table)
        return {SIMILARITY: table @ (table.transpose(-1, -2) @ test)}


class Steps(NamedTuple):
    """Gradient steps: their number, their size, and the weight of an L2 penalty."""

    number: int
    rate: float
    reg: float = 0.0


def aligned(tables: Tensor, sketch: Tensor, steps: Steps) -> Aligned:
    """Steps on ‖Q Qᵀ − S‖² / (2 ‖S‖) for tables Q [..., n, d], given the sketch Y = S Ω [n, s].

    Computed in double precision. A sketch of zeros means that nobody has sent anything, and moves nothing.
    """
    y, q = sketch.double(), tables.double()
    core = _test_matrix(*y.shape).to(y).T @ y
    eye = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    own = eye.expand(*q.shape[:-2], *eye.shape)
    other = q.new_zeros(*q.shape[:-2], y.shape[1], q.shape[-1])
    trace = float(core.trace())
    if trace > 0:
        values, vectors = torch.linalg.eigh((core + core.T) / 2)
        inverse = (1 / (values.clamp(min=0) + _DAMPING * trace)).unsqueeze(-1)
        z = y @ vectors  # S ≈ Z diag(inverse) Zᵀ: small columns have small errors before they are scaled up
        zz = z.T @ z
        rate = 2 * steps.rate / (inverse * zz * inverse.T * zz).sum().sqrt()  # over ‖S‖
        qq, zq = q.transpose(-1, -2) @ q, z.T @ q
        for _ in range(steps.number):
            p, r = (1 - steps.rate * steps.reg) * eye - rate * qq, rate * inverse * zq
            own, other = own @ p, other @ p + r
            ahead, added = zq @ p, zz @ r
            cross = ahead.transpose(-1, -2) @ r
            qq = p.transpose(-1, -2) @ qq @ p + cross + cross.transpose(-1, -2) + r.transpose(-1, -2) @ added
            zq = ahead + added
        other = vectors @ other
    return Aligned(own.to(tables), other.to(tables))


def _test_matrix(items: int, size: int) -> Tensor:
    return torch.from_numpy(of_items(np.arange(items), size))


@dataclass(frozen=True)
class AlignThenTrain(Update):
    """Align the table, then train it and the user vector together."""

    label: str = "align with the mean similarity, then all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        optimizer = Adam(context.hyper["learning_rate"], context.hyper["reg"])
        return (Stage(context.local_epochs, (Move(("user", ITEMS), optimizer),), settle=True),)


@dataclass(frozen=True)
class MeanSimilarity(Aggregate):
    """The mean of the similarities that the round's clients sent."""

    label: str = "mean of similarities"
    from_sums: bool = True

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """The mean of the sketches replaces the former one."""
        mean = totals.leaf(SIMILARITY).change / totals.weight
        return shared | {SIMILARITY: mean.to(shared[SIMILARITY].dtype)}


def fedcia(config: FedCIAConfig) -> Method:
    """Build FedCIA: dot × aligned personal table × align, then joint × mean of similarities."""
    d = config.embedding_size
    return Method(
        name="fedcia",
        paper="Han et al. 2025",
        config=config,
        scorer=Dot(d),
        view=AlignedTable(d, config.sketch),
        loss=BinaryCrossEntropy(),
        update=AlignThenTrain(),
        aggregate=MeanSimilarity(),
    )
