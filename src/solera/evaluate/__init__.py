"""Evaluation: protocols, metrics, ranking of held-out items, and the audit of a data set."""

from solera.evaluate.audit import audit
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
    "audit",
    "get",
    "split",
]
