"""Data sets: one common type, loaders for the publishers' formats, splits and negative sampling."""

from solera.core.arrays import Ints
from solera.data.datasets import available, info, load, names, stats
from solera.data.interactions import IdMap, Interactions
from solera.data.ragged import Ragged
from solera.data.registry import DataSet, Licence

__all__ = [
    "DataSet",
    "IdMap",
    "Interactions",
    "Ints",
    "Licence",
    "Ragged",
    "available",
    "info",
    "load",
    "names",
    "stats",
]
