"""Local: every client trains alone and nothing is shared. It detects leaks in an evaluation.

    score(u, i) = ⟨p_u, q_ui⟩        both personal

A client alone knows nothing about items it never interacted with, so under an honest protocol the scores are
no better than chance. A protocol under which it does better leaks the held-out item.
"""

from __future__ import annotations

from solera.core.leaf import Home
from solera.core.method import Method
from solera.core.parts import Adam
from solera.methods.parts import BinaryCrossEntropy, Dot, FactorizationConfig, ItemTable, Joint, Nothing


class LocalConfig(FactorizationConfig):
    """Defaults: those of FedMF."""


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
