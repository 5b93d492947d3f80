"""Evaluation: protocols, metrics, ranking of held-out items, and the audit of a data set."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solera.evaluate.prepared import Ranking
    from solera.evaluate.protocols import PROTOCOLS, Protocol, get, split
    from solera.evaluate.ranking import Evaluation, Evaluator, OnUsers, Score

__all__ = [
    "PROTOCOLS",
    "Evaluation",
    "Evaluator",
    "OnUsers",
    "Protocol",
    "Ranking",
    "Score",
    "get",
    "split",
]
_MODULES = {
    "prepared": ("Ranking",),
    "protocols": ("PROTOCOLS", "Protocol", "get", "split"),
    "ranking": ("Evaluation", "Evaluator", "OnUsers", "Score"),
}


def __getattr__(name: str) -> Any:
    """Load torch only when it is needed: the names of metrics do not need it."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"solera.evaluate.{module}"), name)
    raise AttributeError(f"module 'solera.evaluate' has no attribute {name!r}")
