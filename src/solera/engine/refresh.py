"""Refresh clients on longer histories: their personal leaves train on, shared leaves stay, nothing is sent.

This is what a device can do alone when its owner has chosen something since the last round. Each of
`REFRESH_ROUNDS` local rounds is the method's own local training, of which only the moves of personal leaves
are made: rows of shared leaves that a client keeps do not change, and tables are not merged again.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import torch

from solera.core.arrays import Ints
from solera.core.spec import Home
from solera.data.sampling import ClientData
from solera.engine.simulation import ClientResult, Simulation
from solera.engine.store import TouchedRows

REFRESH_ROUNDS = 5


def refreshed_leaves(simulation: Simulation, round_: int = 0) -> tuple[str, ...]:
    """The personal leaves that a refresh trains; none if the method trains no personal leaf."""
    stages = replace(simulation.task(round_), refresh=True).stages
    moved = {name for stage in stages for move in stage.moves for name in move.all_leaves}
    return tuple(leaf.name for leaf in simulation.method.select(home=Home.PERSONAL) if leaf.name in moved)


def refreshed(simulation: Simulation, data: ClientData, clients: Ints, round_: int) -> Simulation:
    """A copy of the federation whose clients have been refreshed on `data`, from round number `round_` on."""
    twin = copy(simulation)
    twin.state = simulation.state.copy()
    for number in range(round_, round_ + REFRESH_ROUNDS):
        task = replace(twin.task(number), data=data, refresh=True)
        for result in twin.train(task, clients):
            _keep(twin, result)
    return twin


def _keep(simulation: Simulation, result: ClientResult) -> None:
    """Store personal leaves. Rows that clients keep of shared leaves stay as they are."""
    personal = simulation.state.personal
    index = torch.from_numpy(result.clients).to(simulation.state.device)
    for name in personal.whole:
        personal.whole[name][index] = result.params[name]
    group = TouchedRows(result.clients, result.upload.rows, result.upload.row_counts)
    for name in (*personal.tables, *personal.rows):
        if name in personal.initial:
            personal.put(name, group, result.params[name])
