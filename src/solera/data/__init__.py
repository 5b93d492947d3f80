"""Data sets: one type, loaders for the publishers' formats, splits and negative sampling."""

from solera.data.interactions import IdMap, Interactions
from solera.data.ragged import Ints, Ragged

__all__ = ["IdMap", "Interactions", "Ints", "Ragged"]
