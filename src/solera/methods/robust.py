"""`robust`: limits the influence of single clients, for any method that averages clients' changes.

Uploads are limited by a bound that depends on the round's median, so that no single client can set it:

    norm-bound     Δ_u  ← Δ_u · min(1, b · median_v ‖Δ_v‖ / ‖Δ_u‖)
    row-cap        Δ_ui ← Δ_ui · min(1, b · median_v rms_j ‖Δ_vj‖ / ‖Δ_ui‖)        for every row i
    peak-bound     every number of Δ_u cut off at ± b · median_v max |Δ_v|
    weight-bound   w_u  ← min(w_u, b · median_v w_v)                               where clients are weighted

Coordinate by coordinate (Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018), with equal weights
for all clients, whatever the method; n_i clients touch row i:

    trimmed-mean   Σ_u Δ_ui ← n_i · mean without the ⌊t n_i⌋ least and the ⌊t n_i⌋ greatest
    median         Σ_u Δ_ui ← n_i · median

With `over=all` the clients that do not touch a row count as zeros, and n_i is the number of all clients.
Selection of whole clients (Blanchard et al., "Machine Learning with Adversaries", NeurIPS 2017), where f = ⌊s
n⌋ of n clients are suspected:

    krum           the client whose n − f − 2 nearest others are nearest, by squared distance, alone
    multi-krum     the n − f such clients

As in a federation over devices, where uploads are masked and a server only sees sums over groups: clients
are on `nodes`, in the order of their numbers, and nodes in `groups`;

    grouped        peak-bound, then Σ_u Δ_ui ← n_i · median over groups of the mean over a group's clients

All other defences need to see single uploads. The result goes to the method's own mean, or to the server's
optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from solera.core.context import RoundContext
from solera.core.errors import ConfigError
from solera.core.leaf import Params
from solera.core.method import Method
from solera.core.parts import Aggregate
from solera.core.upload import Sums, Totals, Upload
from solera.math.robust import bound_norms, cap_rows, combine, cut_peaks, krum, trimmed_totals
from solera.methods.parts import Mean
from solera.methods.server_side import ServerOptimizer

Defence = Literal[
    "norm-bound",
    "row-cap",
    "weight-bound",
    "peak-bound",
    "trimmed-mean",
    "median",
    "krum",
    "multi-krum",
    "grouped",
]
DEFENCES: tuple[Defence, ...] = get_args(Defence)


class RobustConfig(BaseModel):
    """Options: one defence and its strength."""

    robust: Defence = Field(default="trimmed-mean", description=f"the defence: {', '.join(DEFENCES)}")
    bound: float = Field(
        default=1.0,
        gt=0,
        description="norm-bound, row-cap, weight-bound, peak-bound, grouped: b, in the round's medians",
    )
    trim: float = Field(
        default=0.2, ge=0, lt=0.5, description="trimmed-mean: t, the share left out at either end"
    )
    over: Literal["touching", "all"] = Field(
        default="touching",
        description="trimmed-mean, median, grouped: of those that touch a row, or of all, with zeros",
    )
    suspected: float = Field(
        default=0.1, ge=0, lt=0.5, description="krum, multi-krum: s, the share of clients"
    )
    nodes: int = Field(default=20, ge=1, description="grouped: nodes that the clients are on")
    groups: int = Field(default=5, ge=1, description="grouped: groups of nodes")


@dataclass(frozen=True)
class Robust(Aggregate):
    """An aggregate that limits or discards suspicious uploads before it combines them."""

    inner: Mean | ServerOptimizer
    config: RobustConfig

    @property
    def label(self) -> str:
        over = (
            f" over {self.config.over}" if self.config.robust in ("trimmed-mean", "median", "grouped") else ""
        )
        return f"{self.config.robust}{over}, then {self.inner.label}"

    @property
    def weighted(self) -> bool:
        """As in the inner aggregate. Order statistics weigh all clients the same."""
        return self.inner.weighted and self.config.robust not in ("trimmed-mean", "median")

    def memory(self, sent: Params) -> Params:
        return self.inner.memory(sent)

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        return self.inner.combine(shared, totals, context)

    def sift(self, upload: Upload, weights: Tensor | None, totals: Totals) -> None:
        config, leaves = self.config, totals.leaves
        match config.robust:
            case "norm-bound":
                totals.add(bound_norms(upload, leaves, config.bound), weights)
            case "row-cap":
                totals.add(cap_rows(upload, leaves, config.bound), weights)
            case "peak-bound":
                totals.add(cut_peaks(upload, leaves, config.bound), weights)
            case "grouped":
                totals.merge(self._grouped(cut_peaks(upload, leaves, config.bound), weights, totals))
            case "weight-bound":
                assert weights is not None
                totals.add(upload, weights.clamp(max=config.bound * float(weights.median())))
            case "trimmed-mean" | "median":
                trim = 0.5 if config.robust == "median" else config.trim
                totals.merge(trimmed_totals(upload, leaves, totals.n_items, trim, config.over))
            case "krum" | "multi-krum":
                suspected = int(config.suspected * upload.n_clients + 1e-9)
                wanted = 1 if config.robust == "krum" else upload.n_clients - suspected
                chosen = krum(upload, totals, suspected, wanted)
                totals.add(upload.take(chosen, leaves), None if weights is None else weights[chosen])

    def _grouped(self, upload: Upload, weights: Tensor | None, totals: Totals) -> Sums:
        """The median over groups of nodes."""
        config, leaves, n = self.config, totals.leaves, upload.n_clients
        group = (torch.arange(n) * config.nodes // n) % config.groups
        sums = []
        for number in range(config.groups):
            mine = (group == number).nonzero().squeeze(1)
            if len(mine):
                of_group = Totals(leaves, totals.n_items, upload.rows.device)
                of_group.add(upload.take(mine, leaves), None if weights is None else weights[mine])
                sums.append(of_group.sums())
        return combine(sums, leaves, totals.n_items, "median", over=config.over)


def robust(method: Method, config: RobustConfig) -> Method:
    """Apply the plug-in to a method."""
    aggregate: Aggregate = method.aggregate
    if not isinstance(aggregate, Mean | ServerOptimizer):
        raise ConfigError(
            f"'robust' cannot be used with {method.name!r}: its server does not take the mean of the "
            f"clients' changes (its aggregate: {aggregate.label})",
            "choose a method whose aggregate is a mean; `solera methods` shows the aggregates",
        )
    if config.robust == "weight-bound" and not aggregate.weighted:
        raise ConfigError(
            f"'robust=weight-bound' cannot be used with {method.name!r}: all its clients have the "
            "same weight",
            "leave it out, or choose another defence",
        )
    mine = RobustConfig.model_validate({name: getattr(config, name) for name in RobustConfig.model_fields})
    return replace(method, aggregate=Robust(aggregate, mine))
