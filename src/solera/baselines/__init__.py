"""Centralized baselines: what collecting everybody's history would give."""

from solera.baselines.ease import Ease, EaseConfig
from solera.baselines.popularity import Popularity

__all__ = ["Ease", "EaseConfig", "Popularity"]
