"""iALS: weighted matrix factorization by alternating least squares over all pairs of user and item.

Hu, Koren & Volinsky, "Collaborative Filtering for Implicit Feedback Datasets" (ICDM 2008), as implemented in
the library `implicit`. With x_ui = 1 for training items and 0 otherwise, and confidence c_ui = alpha for
training items and 1 otherwise, it minimises

    Σ_ui c_ui (x_ui − ⟨p_u, q_i⟩)² + reg · (Σ_u ‖p_u‖² + Σ_i ‖q_i‖²)

alternately over all p_u and all q_i. Nothing is sampled, so a protocol's negatives have no effect. For
scoring, a user's vector is solved again, exactly, from the current history (at test time with the validation
item):

    p_u = (QᵀQ + (alpha − 1) · Q_uᵀQ_u + reg·I)⁻¹ · alpha · Q_uᵀ1,      Q_u the rows of the user's items
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from solera.baselines.training import Baseline, Epoch, OnEpoch
from solera.core.errors import ConfigError
from solera.core.frozen import Frozen
from solera.core.randomness import Purpose, generator
from solera.core.types import Ints
from solera.data.interactions import Split
from solera.data.ragged import Ragged


class IALSConfig(Frozen):
    """Settings of iALS."""

    embedding_size: int = Field(default=32, ge=1, description="length of user and item vectors")
    reg: float = Field(default=10.0, ge=0, description="weight of the squared lengths")
    alpha: float = Field(
        default=2.0, gt=0, description="how much a training item weighs against one that is none"
    )
    epochs: int = Field(
        default=15, ge=1, description="times that all users and then all items are solved for"
    )


@dataclass(frozen=True, eq=False)
class IALS(Baseline):
    """A fitted iALS. `model` is the library's model."""

    model: Any

    @classmethod
    def fit(
        cls, split: Split, config: IALSConfig | None = None, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> IALS:
        """Factorize the training items on one thread: the library's own threads would compete with BLAS's."""
        config = config or IALSConfig()
        try:
            from implicit.cpu.als import AlternatingLeastSquares  # noqa: PLC0415 - needs the ials extra
            from threadpoolctl import threadpool_limits  # noqa: PLC0415 - comes with it
        except ImportError:
            raise ConfigError("implicit is not installed", "pip install 'solera[ials]'") from None

        def report(epoch: int, *_: Any) -> None:
            if on_epoch:
                on_epoch(Epoch(epoch + 1, config.epochs, None))

        with threadpool_limits(1, "blas"):
            model = AlternatingLeastSquares(
                config.embedding_size,
                config.reg,
                config.alpha,
                iterations=config.epochs,
                num_threads=1,
                random_state=generator(seed, Purpose.INIT),
            )
            model.fit(_matrix(split.train, split.data.n_items), show_progress=False, callback=report)
        return cls(model)

    def scores(self, users: Ints, history: Ragged) -> Tensor:
        """⟨p_u, q_i⟩ for all items, with p_u solved from the user's row of `history`."""
        items = self.model.item_factors
        solved = self.model.recalculate_user(users, _matrix(history.take(users), len(items)))
        return torch.from_numpy(solved @ items.T)


def _matrix(lists: Ragged, n_items: int) -> Any:
    """The lists as a sparse matrix of ones. A repeated item counts once."""
    from scipy.sparse import csr_matrix  # noqa: PLC0415 - comes with implicit

    lists = lists.sorted_unique()
    ones = np.ones(len(lists.values), dtype=np.float32)
    return csr_matrix((ones, lists.values, lists.offsets), shape=(len(lists), n_items))
