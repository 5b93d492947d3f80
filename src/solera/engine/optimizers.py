"""Optimiser steps on tables of rows, from gradients of a batch of places in them.

The same arithmetic as `torch.optim.SGD` and `torch.optim.Adam` on each client's own rows. SGD touches the
rows of the batch alone; Adam's running means move every row at every step, so it runs over the whole table.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

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
                values.index_add_(0, place, gradient, alpha=-rate)


class _AdamStep:
    def __init__(self, settings: Adam) -> None:
        self._settings = settings
        self._adam: torch.optim.Adam | None = None

    def __call__(self, gradients: list[Gradient]) -> None:
        if self._adam is None:
            for values, _, place in gradients:
                if place is not None:
                    values.grad = torch.empty_like(values)
            self._adam = torch.optim.Adam(
                [values for values, _, _ in gradients],
                lr=self._settings.learning_rate,
                weight_decay=self._settings.reg,
                fused=True,
            )
        for values, gradient, place in gradients:
            if place is None:
                values.grad = gradient
            else:
                assert values.grad is not None
                values.grad.zero_().index_add_(0, place, gradient)
        self._adam.step()
