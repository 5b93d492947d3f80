"""Optimiser steps on tables of rows, from gradients of a batch of places in them.

The same arithmetic as `torch.optim.SGD` and `torch.optim.Adam` on each client's own rows. SGD touches the
rows of the batch alone; Adam's running means move every row at every step, so it runs over the whole table.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam

from solera.core.method import Adam, Sgd


class Gradient(NamedTuple):
    """A leaf's values and gradient; with `place`, the gradient is of those rows (which may repeat)."""

    values: Tensor
    gradient: Tensor
    place: Tensor | None


class Step(Protocol):
    """Changes values in place."""

    def __call__(self, gradients: list[Gradient]) -> None:
        """One step; the same leaves in the same order every time."""
        ...


def step_of(optimizer: Sgd | Adam) -> Step:
    """A fresh optimiser."""
    return _AdamStep(optimizer) if isinstance(optimizer, Adam) else _SgdStep(optimizer)


class _SgdStep:
    def __init__(self, settings: Sgd) -> None:
        self._settings = settings

    def __call__(self, gradients: list[Gradient]) -> None:
        rate, reg = self._settings.learning_rate, self._settings.reg
        for values, gradient, place in gradients:
            if reg:
                values.mul_(1 - rate * reg)
            if place is None:
                values.add_(gradient, alpha=-rate)
            else:
                values.index_add_(0, place, gradient * -rate)  # torch is slower when given alpha


class _AdamStep:
    """torch's fused kernel in its functional form: the optimiser object costs more than the step."""

    def __init__(self, settings: Adam) -> None:
        self._settings = settings
        self._sums: list[Tensor] = []  # where gradients of repeated rows are added up
        self._means: list[Tensor] = []
        self._squares: list[Tensor] = []
        self._counts: list[Tensor] = []

    def __call__(self, gradients: list[Gradient]) -> None:
        values = [gradient.values for gradient in gradients]
        if not self._counts:
            self._sums = [torch.empty_like(v) for v in values]
            self._means = [torch.zeros_like(v) for v in values]
            self._squares = [torch.zeros_like(v) for v in values]
            self._counts = [torch.zeros((), dtype=torch.float32, device=v.device) for v in values]
        each = zip(gradients, self._sums, strict=True)
        adam(
            values,
            [_summed(gradient, into) for gradient, into in each],
            self._means,
            self._squares,
            [],
            self._counts,
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._settings.learning_rate,
            weight_decay=self._settings.reg,
            eps=1e-8,
            maximize=False,
        )


def _summed(gradient: Gradient, into: Tensor) -> Tensor:
    if gradient.place is None:
        return gradient.gradient
    return into.zero_().index_add_(0, gradient.place, gradient.gradient)
