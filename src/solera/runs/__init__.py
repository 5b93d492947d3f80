"""Runs: train a method under a protocol, record it, resume it, and recommend from it."""

from solera.runs.config import RunConfig
from solera.runs.folder import RunFolder
from solera.runs.progress import Progress
from solera.runs.recommending import Recommendation
from solera.runs.result import RoundEntry, RunResult
from solera.runs.rounds import StoppedError
from solera.runs.run import Run
from solera.runs.training import train

__all__ = [
    "Progress",
    "Recommendation",
    "RoundEntry",
    "Run",
    "RunConfig",
    "RunFolder",
    "RunResult",
    "StoppedError",
    "train",
]
