"""Runs: train a method under a protocol, keep the record, resume it, recommend from it."""

from solera.runs.config import RunConfig
from solera.runs.folder import RunFolder
from solera.runs.recommending import Recommendation
from solera.runs.run import Run
from solera.runs.training import Progress, StoppedError, train

__all__ = ["Progress", "Recommendation", "Run", "RunConfig", "RunFolder", "StoppedError", "train"]
