"""Runs: train a method under a protocol, record it, resume it, and recommend from it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solera.runs.folder import RunFolder
    from solera.runs.recommending import Recommendation
    from solera.runs.result import Progress, RoundEntry, RunResult
    from solera.runs.run import Run
    from solera.runs.settings import RunConfig
    from solera.runs.training import AfterRound, Callback, StoppedError, train

__all__ = [
    "AfterRound",
    "Callback",
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
_MODULES = {
    "folder": ("RunFolder",),
    "recommending": ("Recommendation",),
    "result": ("Progress", "RoundEntry", "RunResult"),
    "run": ("Run",),
    "settings": ("RunConfig",),
    "training": ("AfterRound", "Callback", "StoppedError", "train"),
}


def __getattr__(name: str) -> Any:
    """Load torch only when it is needed: the settings of a run do not need it."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"solera.runs.{module}"), name)
    raise AttributeError(f"module 'solera.runs' has no attribute {name!r}")
