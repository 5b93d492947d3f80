"""FedEM's server: a table for every client, mixed from those of similar clients (Eq. 13); see `fedem`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from solera.core.context import RoundContext
from solera.core.mixing import onto_simplex, squared_distances
from solera.core.parts import Mean
from solera.core.randomness import Purpose
from solera.core.spec import Params
from solera.core.upload import Totals

_REFRESHED = 0.1  # fraction of the clients per round in the public code
_ALIKE = 0.9  # values above this are set to 1 in the public code


@dataclass(frozen=True)
class SimilarityWeighted:
    """Mix every client's table from all tables, with larger weights for similar and for larger clients."""

    alpha: float
    form: Literal["paper", "code"] = "paper"
    label: str = "similarity-weighted, a table per client"
    weighted: bool = True
    source: str = "items"
    target: str = "items"

    @property
    def tells(self) -> str:
        """In the code's form, some clients have no new table."""
        return "items.renewed" if self.form == "code" else ""

    def renewed(self, clients: int, context: RoundContext) -> Tensor:
        """1 for the clients that were drawn."""
        told = torch.zeros(clients)
        told[_drawn(clients, context)] = 1
        return told

    @property
    def sketchable(self) -> bool:
        """The code's form takes principal components of single tables."""
        return self.form == "paper"

    def mixing(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        """Eq. 13 for all clients at once."""
        if self.form == "code":
            return self._of_some(tables, weights, context)
        alike = 1 / (1 + squared_distances(tables))
        return onto_simplex((weights / weights.sum() + self.alpha * alike) / (1 + self.alpha))

    def _of_some(self, tables: Tensor, weights: Tensor, context: RoundContext) -> Tensor:
        some = _drawn(len(tables), context).to(tables.device)
        alike = 1 / (1 + squared_distances(_first_components(tables[some])).sqrt())
        alike[alike > _ALIKE] = 1
        mine = weights[some]
        among = onto_simplex(mine / mine.sum() + self.alpha * alike)
        mixing = torch.eye(len(tables), dtype=among.dtype, device=tables.device)
        mixing[some[:, None], some] = among
        return mixing

    def combine(self, shared: Params, totals: Totals, context: RoundContext) -> Params:
        """Average the leaves of which clients have no version of their own."""
        return Mean(weighted=True).combine(shared, totals, context)


def _drawn(clients: int, context: RoundContext) -> Tensor:
    """The places of the clients that get a new table, ascending."""
    count = max(1, round(_REFRESHED * clients))
    drawn = context.generator(Purpose.CLIENTS, 1).choice(clients, count, replace=False)
    return torch.from_numpy(drawn).sort().values


def _first_components(tables: Tensor) -> Tensor:
    """Coordinates [c, n, 1] of the items along each table's direction of largest variance."""
    centred = tables - tables.mean(1, keepdim=True)
    directions = torch.linalg.eigh(centred.transpose(1, 2) @ centred).eigenvectors[..., -1:]
    mean = centred.mean(0)
    reference = torch.linalg.eigh(mean.T @ mean).eigenvectors[:, -1]
    signs = torch.sign((directions * reference[:, None]).sum(1, keepdim=True))
    return torch.matmul(centred, directions * signs)
