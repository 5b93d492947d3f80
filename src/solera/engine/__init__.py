"""Engines that train simulated clients. `reference` is the specification, `block` is the fast one."""

from solera.engine.block import BlockTraining
from solera.engine.one_round import OneRound, Solution
from solera.engine.reference import train_one_by_one
from solera.engine.simulation import RoundResult, Simulation
from solera.engine.store import State

__all__ = ["BlockTraining", "OneRound", "RoundResult", "Simulation", "Solution", "State", "train_one_by_one"]
