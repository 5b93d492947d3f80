"""FedHist: represents a user by a memory of their own history, trained in federated rounds.

The idea of the one-round methods, which solve for an items × items matrix, for catalogues of any size:
two vectors per item.

    memory:  m_t = [1 ; Σ_{k < t} a^(t−1−k) E[i_k] / √(Σ_{k < t} a^(t−1−k))]       E shared
    score:   s_t(i) = ⟨m_t, Q[i]⟩                                                  Q shared, first a bias
    loss:    1/√n · Σ_t −log(e^s_t(i_t) / (e^s_t(i_t) + Σ_j e^s_t(j)))             j the negatives drawn
    local:   E and Q take steps on the n ≤ `batch_size` places of the own sequence at a time, oldest first
    server:  every row ← its mean over the clients that touched it
    served:  with the memory of the whole history known

A device keeps only its history, so a user who never took part is served like any other.

Symbols: a are `decays`, each for an equal share of the dimensions.
"""

from __future__ import annotations

from pydantic import Field

from solera.core.context import Decays, MethodConfig
from solera.core.history import INPUTS, FadingHistory, InputsAndItems
from solera.core.losses import SampledSoftmax
from solera.core.method import Method
from solera.core.parts import Joint, Mean
from solera.core.schedule import Schedule, Scheduled
from solera.core.wrappers import ITEMS


class FedHistConfig(MethodConfig):
    """Defaults: chosen on the validation items of MovieLens-100K."""

    embedding_size: int = Field(default=32, ge=1, description="length of an item's input")
    decays: Decays = Field(
        default=(0.6, 0.95),
        description="a, shared out among the dimensions, e.g. 0.6,0.95; 1 forgets nothing",
    )
    learning_rate: Scheduled = Field(default=Schedule(start=4.0), description="step size of both tables")
    batch_size: int = Field(default=256, ge=1, description="places of the own sequence per local step")
    negatives: int = Field(
        default=1, ge=1, description="negatives drawn per item of the sequence, for all its places"
    )
    clients_per_round: float = Field(
        default=0.2, gt=0, description="share of the clients per round (up to 1), or their number (above 1)"
    )


def fedhist(config: FedHistConfig) -> Method:
    """Build FedHist: own history × shared × joint × row mean."""
    return Method(
        name="fedhist",
        paper="our own",
        config=config,
        scorer=FadingHistory(config.decays),
        view=InputsAndItems(config.embedding_size),
        loss=SampledSoftmax(),
        update=Joint((ITEMS, INPUTS)),
        aggregate=Mean(by_row=True),
    )
