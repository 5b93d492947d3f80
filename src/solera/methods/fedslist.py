"""FedSLIST: predicts the next items in closed form, from one round.

After the session-aware linear models of Choi et al. (WWW 2021). For the items i_0 … i_{L−1} of a client and
every position t but the last, with one memory per decay a:

    s_t = Σ_{k ≤ t} a^(t−k) e(i_k)            stacked over the decays; a = 0 is the last item alone
    y_t = Σ_{j < F} b^j e(i_{t+1+j})          what comes next, the nearest most
    client:     sends S_u = Σ_t s_t s_tᵀ and T_u = Σ_t s_t y_tᵀ, both zero outside its own items
    server:     B = (S + λ · mean diag(S) · I)⁻¹ T / (1 + n)^g,   S = Σ_u S_u, T = Σ_u T_u
    device:     score = s Bᵀ with the memory s of its whole history

With `decay_days` = D memories fade by days instead of positions (`math.next_items`), after the time
interval-aware weighting of Park et al. (WSDM 2025): for the days τ of the items

    s_t = Σ_{k ≤ t} max(a^((u_t − τ_k) / D), c) e(i_k)

where u_t = τ_t, or τ_{t+1} with `until_next`: then the time of the request matters when items are scored. If
it is not known, it is taken to be that of the newest item.

n are the items' popularities as known to the server, the diagonal of S for the first memory: with decay 0,
how often an item occurred other than as the last one.

The sums over t are geometric, so the s_t are not computed one by one (`math.next_items`).

With `neighbours` = k the sums stay sparse, and every item j has weights from k rows N of S only, those with
the largest normalised T (`math.sparse_ridge`): (S[N, N] + λ · mean diag(S) · I) b = T[N, j].

With `source_attributes` = ρ and `target_attributes` = τ items with the same attributes have similar weights
(`core.content`). With the attribute vectors F of items, the ridge becomes λ tr(Bᵀ (I + ρ F Fᵀ)⁻¹ B), and then
B ← B (I + τ F Fᵀ), before the division by popularities. An item in no training row is scored by its
attributes, or with `cold_neighbours` like the nearest items that are in some.

With `compact` the client sends T_u and n_u, how often it has every item, and no S_u. If the one memory keeps
fading after the last item, S is known from these: for positions k ≤ l it is a^(l−k) / (1 − a²), and T is
a^(l−k−1) with F = 1, so that

    (1 − a²) S = diag(n) + a (T + Tᵀ).

That is half as many numbers, which matters if all of them get the same noise. Noise may make S indefinite; λ
is then doubled until it is not. Where noise hides T, popularity is still known: with `popularity_prior` c,
T + c · n nᵀ / Σ n stands on the right-hand side.

With `least_clients` = T the client sends what threshold reports tell (`privacy.reports`): which of its
`newest` items i it met before which j, with the class of the distance l between them, ⌈log₂ l⌉. Counts N
below T are taken for 0. With the means w of a^(l−1) over a class,

    T_ij = Σ_classes w · N_ij,    n_i = how many clients have i,    (1 − a²) S = diag(n) + a (T + Tᵀ)

as with `compact`, solved on neighbours.

Symbols: a are `decays`, F is `horizon`, b is `horizon_decay`, λ is `ridge`, g is `popularity_discount`, D is
`decay_days`, c is `least_weight`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from solera.core.closed_form import (
    Channels,
    ClosedForm,
    ClosedFormConfig,
    Contribution,
    Solve,
    Summary,
    by_item,
)
from solera.core.content import NO_PRIOR, AttributePrior
from solera.core.sparse import Rows, SparseTotal, at_least
from solera.core.types import Floats, Ints
from solera.math.next_items import NextItemOptions, next_item_weights, next_products
from solera.math.sparse_ridge import diagonal, of_rows, solved
from solera.methods.parts import OwnHistory


class FedSLISTConfig(NextItemOptions, ClosedFormConfig):
    """Defaults: good on MovieLens. Values chosen on validation for each data set are better."""

    compact: bool = Field(
        default=False,
        description="send T and item counts, from which S follows; for one decay below 1 and horizon 1",
    )
    popularity_prior: float = Field(
        default=0.0,
        ge=0,
        description="with compact: next items by popularity, so many per occurrence, added to T",
    )

    least_clients: int = Field(
        default=0,
        ge=0,
        description="learn from pairs, in classes of distance, that at least so many clients have, as by "
        "threshold reports; with compact and neighbours; 0: from all products",
    )
    newest: int = Field(
        default=20, ge=2, le=512, description="items of a history that it is learned from, with least_clients"
    )

    @model_validator(mode="after")
    def _compact(self) -> Self:
        if self.least_clients and not (self.compact and self.neighbours):
            raise ValueError("least_clients needs compact=true and neighbours, e.g. neighbours=100")
        if self.popularity_prior and not self.compact:
            raise ValueError("popularity_prior needs compact=true")
        if not self.compact:
            return self
        if len(self.decays) > 1 or self.decays[0] >= 1 or self.horizon > 1:
            raise ValueError("compact needs one decay below 1, and horizon=1")
        if self.neighbours and not self.least_clients:
            raise ValueError("compact takes neighbours with least_clients only")
        if self.decay_days or self.reads_attributes:
            raise ValueError("compact takes no decay_days and no options of attributes")
        return self


@dataclass(frozen=True)
class NextItems:
    """Products of memories with each other and with the next items."""

    options: NextItemOptions
    label: str = "own order of items"

    @property
    def sums(self) -> Mapping[str, Channels]:
        """The sums S and T."""
        channels = len(self.options.decays)
        return {"memories": Channels(channels, channels, symmetric=True), "next": Channels(channels, 1)}

    def of(self, sequence: Ints, days: Floats | None = None) -> Contribution:
        """S_u and T_u of a client's items."""
        memories, following = self.options.products(len(sequence), days)
        return by_item(sequence, {"memories": memories, "next": following})


@dataclass(frozen=True)
class NextItemsAlone:
    """Products of one memory with the next item, and how often every item occurs."""

    decay: float
    label: str = "own order of items, compact"

    @property
    def sums(self) -> Mapping[str, Channels]:
        """The sums T and n."""
        return {"next": Channels(1, 1), "counts": Channels(1, 1, width=1)}

    def of(self, sequence: Ints, days: Floats | None = None) -> Contribution:
        """T_u and n_u of a client's items, whatever their days."""
        items, blocks = by_item(sequence, {"next": next_products(len(sequence), (self.decay,), 1, 0.0)})
        counts = (sequence == items[:, None]).sum(1, dtype=np.float64)
        return Contribution(items, {**blocks, "counts": counts[None, :, None, None]})


@dataclass(frozen=True)
class OrderedPairs:
    """Which of the newest items come before which, with the class of their distance."""

    newest: int
    label: str = "own order of items, in classes of distance"

    @property
    def sums(self) -> Mapping[str, Channels]:
        """Counts N by class, and n."""
        return {
            "ordered": Channels(_class_of(self.newest - 1) + 1, 1, largest=1, whole=True),
            "items": Channels(1, 1, symmetric=True, largest=1, whole=True),
        }

    def of(self, sequence: Ints, days: Floats | None = None) -> Contribution:
        """Ones. A repeated item stands where it came first."""
        items = np.array(list(dict.fromkeys(sequence.tolist()))[-self.newest :], dtype=sequence.dtype)
        before, after = np.triu_indices(len(items), 1)
        ordered = np.zeros(self.sums["ordered"].shape(len(items)))
        classes = [_class_of(lag) for lag in (after - before).tolist()]
        ordered[classes, before, 0, after] = 1.0
        return Contribution(items, {"ordered": ordered, "items": np.eye(len(items))[None, :, None]})


def _class_of(lag: int) -> int:
    """⌈log₂ lag⌉"""
    return (lag - 1).bit_length()


@dataclass(frozen=True)
class Ridge(Solve):
    """Ridge regression of the next items on the memories."""

    ridge: float
    popularity_discount: float
    label: str = "sum, then ridge regression"

    def solve(self, totals: Mapping[str, Tensor], prior: AttributePrior = NO_PRIOR) -> Tensor:
        both = totals["memories"], totals["next"]
        return next_item_weights(*both, self.ridge, self.popularity_discount, prior)


@dataclass(frozen=True)
class RidgeOfDerived(Solve):
    """Ridge regression of the next item on one memory, whose products follow from T and n."""

    decay: float
    ridge: float
    popularity_discount: float
    popularity_prior: float = 0.0
    label: str = "sum, then ridge regression"

    def solve(self, totals: Mapping[str, Tensor], prior: AttributePrior = NO_PRIOR) -> Tensor:
        """Solve for B. There is no prior: the config takes no attributes."""
        following, counts = totals["next"], totals["counts"].flatten().clamp(min=0)
        memories = (following + following.T).mul_(self.decay)
        memories.diagonal().add_(counts)
        reg = self.ridge * float(counts.mean())
        memories.diagonal().add_(reg)
        factor, failed = torch.linalg.cholesky_ex(memories)
        while int(failed) > 0:
            memories.diagonal().add_(reg)
            reg *= 2
            factor, failed = torch.linalg.cholesky_ex(memories)
        if self.popularity_prior:
            following = following + torch.outer(counts, counts) * (self.popularity_prior / counts.sum())
        weights = torch.cholesky_solve(following, factor).mul_(1 - self.decay**2)
        return weights / (1 + counts).pow(self.popularity_discount)


@dataclass(frozen=True)
class RidgeOnNeighbours(Solve):
    """Ridge regression of the next items on some memories."""

    ridge: float
    popularity_discount: float
    neighbours: int = 0
    label: str = "sum, then ridge regression on neighbours"

    def solve_sparse(self, totals: Mapping[str, Rows]) -> tuple[Tensor, Tensor]:
        memories, following = totals["memories"], totals["next"]
        own, n_items = diagonal(memories), len(following.offsets) - 1
        reg = self.ridge * float(own.mean())
        ids, weights = solved(memories, of_rows(following), n_items, self.neighbours, reg)
        popularity = torch.from_numpy(own[:: len(own) // n_items].copy())
        return ids, weights / (1 + popularity).pow(self.popularity_discount).unsqueeze(1)


@dataclass(frozen=True)
class RidgeOnCounts(Solve):
    """Ridge regression of the next item on one memory, from counts of ordered pairs."""

    decay: float
    ridge: float
    popularity_discount: float
    newest: int
    least_clients: int
    neighbours: int = 0
    label: str = "sum, then ridge regression on neighbours"

    def solve_sparse(self, totals: Mapping[str, Rows]) -> tuple[Tensor, Tensor]:
        counts, items = (at_least(totals[name], self.least_clients) for name in ("ordered", "items"))
        n_items, classes = len(counts.offsets) - 1, _class_of(self.newest - 1) + 1
        weights = np.array([self._weight(each) for each in range(classes)])
        targets = np.repeat(np.arange(n_items), np.diff(counts.offsets))
        sources, of_class = np.divmod(counts.columns, classes)
        values = counts.values * weights[of_class]
        following = SparseTotal(n_items, n_items, np.float64)
        following.add(targets, sources, values)
        memories = SparseTotal(n_items, n_items, np.float64)
        memories.add(np.minimum(sources, targets), np.maximum(sources, targets), self.decay * values)
        own = diagonal(items).astype(np.float64)
        memories.add(np.arange(n_items), np.arange(n_items), own)
        reg = self.ridge * float(own.mean()) or self.ridge
        ids, found = solved(memories.take(), of_rows(following.take()), n_items, self.neighbours, reg)
        popularity = torch.from_numpy(own)
        found = found * (1 - self.decay**2)
        return ids, found / (1 + popularity).pow(self.popularity_discount).unsqueeze(1)

    def _weight(self, of_class: int) -> float:
        """The mean of a^(l−1) over the distances of a class."""
        lags = np.arange(2 ** (of_class - 1) + 1 if of_class else 1, min(2**of_class, self.newest - 1) + 1)
        return float(np.mean(np.power(self.decay, lags - 1.0)))


def fedslist(config: FedSLISTConfig) -> ClosedForm:
    """Build FedSLIST: fading memories × shared × own order × ridge."""
    update: Summary = NextItems(config)
    aggregate: Solve = Ridge(config.ridge, config.popularity_discount)
    if config.least_clients:
        update = OrderedPairs(config.newest)
        aggregate = RidgeOnCounts(
            config.decays[0],
            config.ridge,
            config.popularity_discount,
            config.newest,
            config.least_clients,
            config.neighbours,
        )
    elif config.compact:
        update = NextItemsAlone(config.decays[0])
        aggregate = RidgeOfDerived(
            config.decays[0], config.ridge, config.popularity_discount, config.popularity_prior
        )
    elif config.neighbours:
        aggregate = RidgeOnNeighbours(config.ridge, config.popularity_discount, config.neighbours)
    return ClosedForm(
        name="fedslist",
        paper="after Choi et al. 2021",
        config=config,
        scorer=OwnHistory(config.decays, config.timing),
        update=update,
        aggregate=aggregate,
        timing=config.timing,
    )
