"""What a method's parameters are, where they live, and which of them may travel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from solera.core.errors import ConfigError
from solera.core.randomness import Purpose, generator

Params = dict[str, Tensor]  # leaf name → values; see `Method` for the axes


class Home(StrEnum):
    """Where a leaf lives between rounds."""

    SHARED = "shared"  # on the server, the same for everybody
    PERSONAL = "personal"  # on the client, and nowhere else


class Init(StrEnum):
    """How a leaf starts. Every client starts from the same draw, as a freshly installed device would."""

    ZEROS = "zeros"
    NORMAL = "normal"  # N(0, 1)
    LINEAR = "linear"  # U(−1/√fan_in, 1/√fan_in), fan_in being `Leaf.fan_in`


@dataclass(frozen=True)
class Leaf:
    """One named parameter.

    `shape` is the shape of one item's row where `per_item`, of the whole leaf otherwise. Only leaves with
    `upload` ever leave a device, and a personal leaf cannot have it.
    """

    name: str
    shape: tuple[int, ...]
    home: Home
    init: Init = Init.NORMAL
    per_item: bool = False
    upload: bool = False
    fan_in: int = 1

    def __post_init__(self) -> None:
        if self.upload and self.home is Home.PERSONAL:
            raise ConfigError(
                f"leaf {self.name!r} is personal and marked for upload",
                "a leaf that travels is shared; keep the personal part in a leaf of its own",
            )

    def initial(self, n_items: int, seed: int) -> Tensor:
        """The value before the first round: [n_items, *shape] where per item, else [*shape], in doubles."""
        shape = (n_items, *self.shape) if self.per_item else self.shape
        draw = generator(seed, Purpose.INIT, *self.name.encode())
        match self.init:
            case Init.ZEROS:
                values = np.zeros(shape)
            case Init.NORMAL:
                values = draw.standard_normal(shape)
            case Init.LINEAR:
                bound = 1 / math.sqrt(self.fan_in)
                values = draw.uniform(-bound, bound, shape)
        return torch.from_numpy(values)

    @property
    def size(self) -> int:
        """Numbers in one row, or in the whole leaf."""
        return math.prod(self.shape)
