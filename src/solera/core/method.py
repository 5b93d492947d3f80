"""A method is five choices: scorer, view, loss, update, aggregate."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from solera.core.context import Batch, MethodConfig, RoundContext
from solera.core.errors import ConfigError
from solera.core.leaf import Home, Leaf, Params
from solera.core.parts import Aggregate, Loss, Part, Scorer, Update, View
from solera.core.types import Floats, Ints


@dataclass(frozen=True)
class Method:
    """Five choices and a config. Independent of engines, data sets and evaluation.

    Training negatives are sampled in proportion to (number of clients who train on the item +
    1)^`popularity_power`.
    """

    name: str
    paper: str
    config: MethodConfig
    scorer: Scorer
    view: View
    loss: Loss
    update: Update
    aggregate: Aggregate
    popularity_power: float = 0.0

    one_round: ClassVar[Literal[False]] = False  # tells methods apart; see `closed_form.AnyMethod`
    rounds_needed: ClassVar[None] = None  # the user chooses their number

    def __post_init__(self) -> None:
        """Validate that the parts fit together, and report all problems at once."""
        kinds: tuple[tuple[Part, type[Part]], ...] = (
            (self.scorer, Scorer),
            (self.view, View),
            (self.loss, Loss),
            (self.update, Update),
            (self.aggregate, Aggregate),
        )
        for part, kind in kinds:
            if not isinstance(part, kind):
                raise ConfigError(
                    f"method {self.name!r}: {type(part).__name__} is no {kind.__name__}",
                    f"derive it from solera.core.parts.{kind.__name__}",
                )
        names = [leaf.name for leaf in self.leaves]
        problems = [
            f"leaf {name!r} is declared twice" for name in sorted({n for n in names if names.count(n) > 1})
        ]
        stages = self.update.stages(self.context(0, 1))
        moved = {name for stage in stages for move in stage.moves for name in move.all_leaves}
        problems += [
            f"the update moves {name!r}, which no part declares" for name in sorted(moved - set(names))
        ]
        problems += [
            f"leaf {leaf.name!r} is uploaded but never trained"
            for leaf in self.leaves
            if leaf.sent_as and leaf.name not in moved and leaf.name not in self.view.reports
        ]
        by_name = {leaf.name: leaf for leaf in self.leaves}
        shared_tables = {leaf.name: leaf.shape for leaf in self.select(home=Home.SHARED, per_item=True)}
        sent = [to for to, _ in {(leaf.sent_as, leaf.name) for leaf in self.leaves} if to]
        problems += [
            f"two leaves are sent for {name!r}" for name in sorted({n for n in sent if sent.count(n) > 1})
        ]
        problems += [
            f"leaf {leaf.name!r} feeds {leaf.feeds!r}, which is not a shared per-item leaf of its shape"
            for leaf in self.leaves
            if leaf.feeds and (not leaf.per_item or shared_tables.get(leaf.feeds) != leaf.shape)
        ]
        if self.loss.learns_from != self.scorer.learns_from:
            problems.append(f"the loss {self.loss.label!r} does not train the scorer {self.scorer.label!r}")
        if self.scorer.learns_from == "windows":
            problems += self._unfit_for_windows()
        if any(stage.settle for stage in stages) and not self.view.settles:
            problems.append("the update settles the view, which has nothing to settle")
        if any(leaf.derived_from for leaf in self.leaves) and not self.view.does("derive"):
            problems.append("a leaf is derived, but the view derives nothing")
        if self.aggregate.target:
            problems += [
                f"the aggregate's {what} {name!r} is not {needs}"
                for what, name, known, needs in (
                    ("source", self.aggregate.source, sent, "sent by the clients"),
                    ("target", self.aggregate.target, shared_tables, "a shared per-item leaf"),
                )
                if name not in known
            ]
        problems += [
            f"the view keeps {name!r}, which is not a shared per-item leaf"
            for name in self.view.keeps
            if name not in by_name or not by_name[name].per_item or by_name[name].home is not Home.SHARED
        ]
        if problems:
            raise ConfigError(f"method {self.name!r} is inconsistent: {'; '.join(problems)}")

    def _unfit_for_windows(self) -> list[str]:
        """Why clients cannot send one gradient over a window of their history."""
        personal = [leaf.name for leaf in self.select(home=Home.PERSONAL)]
        found = [f"{name!r} is personal, but clients train on shared leaves alone" for name in personal]
        found += [f"clients keep {name!r}, but they train no rows of their own" for name in self.view.keeps]
        if self.popularity_power:
            found.append("negatives are the same for all clients, and not drawn by popularity")
        return found

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """All leaves of scorer and view."""
        return (*self.scorer.leaves, *self.view.leaves)

    def select(self, *, home: Home | None = None, per_item: bool | None = None) -> tuple[Leaf, ...]:
        """The leaves with the given home, per item or not."""
        return tuple(
            leaf
            for leaf in self.leaves
            if (home is None or leaf.home is home) and (per_item is None or leaf.per_item is per_item)
        )

    @cached_property
    def tailored(self) -> frozenset[str]:
        """The shared leaves of which every client has its own version."""
        if self.aggregate.held:
            return frozenset((self.aggregate.held,))
        if not self.aggregate.target:
            return frozenset()
        target, told = self.aggregate.target, self.told
        more = (leaf for leaf in self.select(home=Home.SHARED) if leaf.derived_from == target)
        return frozenset((target, *(leaf.name for leaf in more), *([told] if told else ())))

    @cached_property
    def added_up(self) -> tuple[Leaf, ...]:
        """The leaves whose changes the server adds up: of a tailored one, it takes every client's version."""
        return tuple(leaf for leaf in self.leaves if leaf.sent_as not in self.tailored)

    @cached_property
    def told(self) -> str:
        """The leaf that tells each client whether its version of the shared table is new; may be empty."""
        tells = self.aggregate.tells
        return tells if any(leaf.name == tells for leaf in self.leaves) else ""

    @property
    def client_share(self) -> float:
        """Clients per round: a fraction of all clients (up to 1), or a number of clients (above 1)."""
        return self.config.clients_per_round

    @property
    def weighted(self) -> bool:
        """Whether clients are weighted by their number of training items."""
        return self.aggregate.weighted

    def heaviest(self, n_items: int) -> int:
        """Most training items that a client counts with: as many as it learns from at once."""
        return min(n_items, self.scorer.max_length + 1) if self.scorer.max_length else n_items

    def weights(self, lengths: Ints, n_items: int) -> Floats:
        """What clients with so many training items weigh in a sum."""
        sizes = np.minimum(lengths, self.heaviest(n_items)).astype(np.float64)
        return sizes if self.weighted else np.ones(len(lengths))

    @property
    def sums_alone(self) -> bool:
        """Whether the server needs only sums over clients, not single uploads."""
        return not self.aggregate.needs_single_uploads

    @property
    def serves_from_history(self) -> bool:
        """Whether a user is served from their history alone, without personal parameters."""
        personal = self.select(home=Home.PERSONAL) or self.view.keeps or self.tailored
        return self.scorer.learns_from != "items" and not personal

    def shared_shapes(self, n_items: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the server's leaves; for a tailored leaf, the shape of one client's version."""
        return {
            leaf.name: (n_items, *leaf.shape) if leaf.per_item else leaf.shape
            for leaf in self.select(home=Home.SHARED)
        }

    def memory(self, shared: Params) -> Params:
        """The aggregate's server-side state before the first round."""
        return self.aggregate.memory(
            {leaf.sent_as: shared[leaf.sent_as] for leaf in self.leaves if leaf.sent_as}
        )

    def context(self, round_: int, n_items: int, seed: int = 0) -> RoundContext:
        """The context of a round in a run with this seed."""
        return RoundContext(round_, n_items, self.config.resolve(round_), seed)

    def score(self, params: Params, view: View | None = None) -> Tensor:
        """Scores [..., n] of the items whose rows are in `params`, as used for serving and evaluation."""
        return self.scorer.score(params, (view or self.view).see(params))

    def batch_loss(self, params: Params, batch: Batch, view: View | None = None) -> Tensor:
        """The loss of a batch, one value per client, [...]."""
        return self.loss.value(self.score(params, view), batch)

    def penalty(
        self, params: Params, batch: Batch, context: RoundContext, view: View | None = None
    ) -> Tensor | float:
        """The penalty the view adds to the loss, [...]."""
        return (view or self.view).penalty(params, batch, context)

    def gradient(
        self,
        params: Params,
        batch: Batch,
        context: RoundContext,
        wanted: Collection[str],
        view: View | None = None,
    ) -> tuple[Tensor, Params]:
        """The scores [..., n] of a batch, and the gradients of loss and penalty by the wanted leaves.

        Starts from the known derivative of the loss by the scores. Uses analytic gradients if both scorer and
        view have them, and autograd otherwise.
        """
        view = view or self.view
        if not (self.scorer.does("gradient") and view.does("gradient")):
            return self._autograd(params, batch, context, wanted, view)
        items = view.see(params)
        scores = self.scorer.score(params, items)
        slope = self.loss.slope(scores, batch)
        found = self.scorer.gradient(params, items, slope, wanted)
        if len(found) < len(wanted):
            found |= view.gradient(params, self.scorer.item_gradient(params, slope), batch, context)
        return scores, found

    def _autograd(
        self, params: Params, batch: Batch, context: RoundContext, wanted: Collection[str], view: View
    ) -> tuple[Tensor, Params]:
        moving = {name: params[name].detach().requires_grad_() for name in wanted}
        scores = self.score(params | moving, view)
        slope = self.loss.slope(scores.detach(), batch)
        penalty = torch.as_tensor(self.penalty(params | moving, batch, context, view))
        found = torch.autograd.grad((scores * slope).sum() + penalty.sum(), list(moving.values()))
        return scores.detach(), dict(zip(moving, found, strict=True))

    @property
    def choices(self) -> dict[str, str]:
        """Labels of the five choices."""
        return {
            "scorer": self.scorer.label,
            "view": self.view.label,
            "loss": self.loss.label,
            "update": self.update.label,
            "aggregate": self.aggregate.label,
        }
