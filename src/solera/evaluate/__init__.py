"""Evaluation: protocols, metrics, ranking of held-out items, and the audit of a data set."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solera.evaluate.protocols import PROTOCOLS, Protocol, get, split
    from solera.evaluate.ranking import Evaluation, Evaluator, OnUsers, Ranking, Score

__all__ = ["PROTOCOLS", "Evaluation", "Evaluator", "OnUsers", "Protocol", "Ranking", "Score", "get", "split"]


def __getattr__(name: str) -> Any:
    """Load torch only when it is needed: the names of metrics do not need it."""
    if name not in __all__:
        raise AttributeError(f"module 'solera.evaluate' has no attribute {name!r}")
    module = "protocols" if name in {"PROTOCOLS", "Protocol", "get", "split"} else "ranking"
    return getattr(import_module(f"solera.evaluate.{module}"), name)
