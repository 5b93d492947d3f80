"""Local: every client trains alone and nothing is shared. It detects leaks in an evaluation.

    score(u, i) = ⟨p_u, q_ui⟩        both personal

A client alone knows nothing about items it never interacted with, so under an honest protocol the scores are
no better than chance. A protocol under which it does better leaks the held-out item.
"""

from __future__ import annotations

from pydantic import Field

from solera.core.context import MethodConfig, Schedule, Scheduled
from solera.core.leaf import Home
from solera.core.method import Method
from solera.core.parts import Adam
from solera.methods.parts import BinaryCrossEntropy, Dot, ItemTable, Joint, Nothing


class LocalConfig(MethodConfig):
    """Defaults: those of FedMF."""

    embedding_size: int = Field(default=16, ge=1, description="length of user and item vectors")
    learning_rate: Scheduled = Field(
        default=Schedule(start=0.01), description="step size of user and item vectors"
    )
    local_epochs: int = Field(default=10, ge=1, description="passes over a client's own data per round")


def local(config: LocalConfig) -> Method:
    """Build Local: dot × personal table × joint × none."""
    return Method(
        name="local",
        paper="no collaboration",
        config=config,
        scorer=Dot(config.embedding_size),
        view=ItemTable(config.embedding_size, home=Home.PERSONAL),
        loss=BinaryCrossEntropy(),
        update=Joint(("user", "items"), Adam),
        aggregate=Nothing(),
    )
