"""Optimizer steps on tables of rows, given gradients for some of the rows.

The same arithmetic as `torch.optim.SGD` and `torch.optim.Adam` on each client's own rows. SGD touches only
the rows of the batch. Adam's running means change every row at every step, so it runs over the whole table.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from solera.core.parts import Adam, Sgd


class Gradient(NamedTuple):
    """A leaf's values and the gradient of its first rows, or of the rows `place` (which may repeat).

    `bounds` are the limits, among the values, of the groups of clients that advance together, and
    `gradient_bounds` their limits among the gradient's rows.
    """

    values: Tensor
    gradient: Tensor
    place: Tensor | None
    bounds: list[int]
    gradient_bounds: list[int]


class Step(Protocol):
    """An optimizer step that changes values in place."""

    def __call__(self, gradients: list[Gradient], marching: int) -> None:
        """Update the first `marching` groups. Every call must pass the same leaves in the same order."""
        ...


def step_of(optimizer: Sgd | Adam) -> Step:
    """A new optimizer."""
    return _AdamStep(optimizer) if isinstance(optimizer, Adam) else _SgdStep(optimizer)


class _SgdStep:
    def __init__(self, settings: Sgd) -> None:
        self._settings = settings
        self._steps: list[int] = []  # taken by each group

    def __call__(self, gradients: list[Gradient], marching: int) -> None:
        if not self._steps:
            self._steps = [0] * (len(gradients[0].bounds) - 1)
        rates = [self._settings.learning_rate * self._settings.decay**n for n in self._steps[:marching]]
        groups = [(0, marching, rates[0])] if rates.count(rates[0]) == marching else []
        groups = groups or [(group, group + 1, rate) for group, rate in enumerate(rates)]
        for first, end, rate in groups:
            self._step(gradients, first, end, rate)
        self._steps = [n + (group < marching) for group, n in enumerate(self._steps)]

    def _step(self, gradients: list[Gradient], first: int, end: int, rate: float) -> None:
        """Update the groups from `first` to `end`."""
        values, slopes = [], []
        for gradient in gradients:
            mine = gradient.values[gradient.bounds[first] : gradient.bounds[end]]
            here = slice(gradient.gradient_bounds[first], gradient.gradient_bounds[end])
            if gradient.place is None:
                values.append(mine)
                slopes.append(gradient.gradient[here])
                continue
            if self._settings.reg:
                mine.mul_(1 - rate * self._settings.reg)
            # torch is slower if alpha is given
            gradient.values.index_add_(0, gradient.place[here], gradient.gradient[here] * -rate)
        if values:
            self._fused(values, slopes, rate)
        if self._settings.shrink:
            for gradient in gradients:
                mine = gradient.values[gradient.bounds[first] : gradient.bounds[end]]
                mine.copy_(functional.softshrink(mine, self._settings.shrink))

    def _fused(self, values: list[Tensor], slopes: list[Tensor], rate: float) -> None:
        sgd(
            values,
            slopes,
            [None] * len(values),
            fused=True,
            weight_decay=self._settings.reg,
            momentum=0.0,
            lr=rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


class _AdamStep:
    """Adam with torch's functional fused kernel, because the optimizer object costs more than the step.

    The kernel takes a list of tensors, each with its own number of steps: one per leaf and group.
    """

    def __init__(self, settings: Adam) -> None:
        self._settings = settings
        self._leaves: list[_AdamLeaf] = []

    def __call__(self, gradients: list[Gradient], marching: int) -> None:
        if not self._leaves:
            self._leaves = [_AdamLeaf(gradient) for gradient in gradients]
        each = list(zip(self._leaves, gradients, strict=True))
        adam(
            [part for leaf in self._leaves for part in leaf.values[:marching]],
            [part for leaf, gradient in each for part in leaf.split(gradient, marching)],
            [part for leaf in self._leaves for part in leaf.means[:marching]],
            [part for leaf in self._leaves for part in leaf.squares[:marching]],
            [],
            [part for leaf in self._leaves for part in leaf.counts[:marching]],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._settings.learning_rate,
            weight_decay=self._settings.reg,
            eps=1e-8,
            maximize=False,
        )


class _AdamLeaf:
    """The running means of one leaf, split into groups like its values."""

    def __init__(self, gradient: Gradient) -> None:
        values, bounds = gradient.values, gradient.bounds
        self._sizes = [end - start for start, end in pairwise(bounds)]
        self._bounds = bounds
        self._sum = torch.empty_like(values) if gradient.place is not None else None
        self.values = torch.split(values, self._sizes)
        self.means = torch.split(torch.zeros_like(values), self._sizes)
        self.squares = torch.split(torch.zeros_like(values), self._sizes)
        self.counts = [torch.zeros((), dtype=torch.float32, device=values.device) for _ in self._sizes]

    def split(self, gradient: Gradient, marching: int) -> tuple[Tensor, ...]:
        """The gradient of every advancing group. Gradients of repeated rows are added up first."""
        whole = gradient.gradient
        if gradient.place is not None:
            assert self._sum is not None
            whole = self._sum[: self._bounds[marching]].zero_().index_add_(0, gradient.place, whole)
        return torch.split(whole, self._sizes[:marching])
