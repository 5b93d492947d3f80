"""Specification of a method's parameters: what they are, where they live, and which may leave the device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from solera.core.errors import ConfigError
from solera.core.randomness import Purpose, generator

ITEMS = "items"  # the leaf of the item table
INPUTS, MEMORY = "inputs", "memory"  # input vectors of a memory of the own history, and that memory
Params = dict[str, Tensor]  # leaf name → values; see `Method` for the axes


class Home(StrEnum):
    """Where a leaf lives between rounds."""

    SHARED = "shared"  # on the server, the same for everybody
    PERSONAL = "personal"  # only on the client


class Init(StrEnum):
    """How a leaf is initialized. Every client starts from the same draw, like a freshly installed device."""

    ZEROS = "zeros"
    ONES = "ones"
    NORMAL = "normal"  # N(0, 1)
    LINEAR = "linear"  # U(−1/√fan_in, 1/√fan_in), where fan_in is `Leaf.fan_in`


@dataclass(frozen=True)
class Leaf:
    """One named parameter.

    `shape` is the shape of one item's row if `per_item`, and of the whole leaf otherwise. Only two kinds of
    leaf leave a device: shared leaves with `upload`, and personal leaves whose `feeds` names the shared leaf
    that is aggregated from them. The latter start with that leaf's initial values. A `fresh` personal leaf is
    initialized again in every round and is kept only to serve its user. A leaf `derived_from` a table is
    computed from it by the view's `derive`. With `bias`, the first number of every row is the item's bias,
    which a coding must keep more exactly than the others. The rows of a per-item leaf that a client does not
    touch in a round are multiplied by the leaf `fades_with`, as it is after training; see `methods.fedrap`.
    """

    name: str
    shape: tuple[int, ...]
    home: Home
    init: Init = Init.NORMAL
    per_item: bool = False
    upload: bool = False
    fan_in: int = 1
    feeds: str = ""
    fresh: bool = False
    derived_from: str = ""
    bias: bool = False
    fades_with: str = ""

    def __post_init__(self) -> None:
        if self.upload and self.home is Home.PERSONAL:
            raise ConfigError(
                f"leaf {self.name!r} is personal and marked for upload",
                "make the leaf shared, or name in `feeds` the shared leaf that is computed from it",
            )
        if self.home is Home.SHARED and (self.feeds or self.fresh):
            raise ConfigError(
                f"leaf {self.name!r} is shared: `feeds` and `fresh` are for personal leaves only"
            )

    @property
    def sent_as(self) -> str:
        """The shared leaf that changes of this leaf are sent for; empty if they stay on the device."""
        return self.feeds or (self.name if self.upload else "")

    def initial(self, n_items: int, seed: int) -> Tensor:
        """The initial value, in double precision: [n_items, *shape] if per item, else [*shape]."""
        shape = (n_items, *self.shape) if self.per_item else self.shape
        draw = generator(seed, Purpose.INIT, *(self.feeds or self.name).encode())
        match self.init:
            case Init.ZEROS:
                values = np.zeros(shape)
            case Init.ONES:
                values = np.ones(shape)
            case Init.NORMAL:
                values = draw.standard_normal(shape)
            case Init.LINEAR:
                bound = 1 / math.sqrt(self.fan_in)
                values = draw.uniform(-bound, bound, shape)
        return torch.from_numpy(values)

    @property
    def size(self) -> int:
        """Number of values in one row, or in the whole leaf."""
        return math.prod(self.shape)
