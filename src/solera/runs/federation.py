"""The simulated federation that a run's settings describe."""

from __future__ import annotations

import torch

from solera.core.closed_form import ClosedForm
from solera.core.errors import ConfigError
from solera.core.method import Method
from solera.data.sampling import ClientData
from solera.data.split import Split
from solera.engine import BlockTraining, OneRound, Simulation, train_one_by_one
from solera.runs.config import RunConfig

Federation = Simulation | OneRound


def federation(
    config: RunConfig, method: Method | ClosedForm, split: Split, threads: int, device: str
) -> Federation:
    """Server and clients before their first round."""
    try:
        place = torch.device(device)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {device!r} cannot be used: {reason}", "try --device cpu") from None
    clients = ClientData(split.train, split.excluded, split.data.n_items)
    dtype = torch.float64 if config.precision == "double" else torch.float32
    if isinstance(method, ClosedForm):
        return OneRound(
            method, clients, device=place, dtype=dtype, secure_aggregation=config.secure_aggregation
        )
    return Simulation(
        method,
        clients,
        train_one_by_one if config.engine == "reference" else BlockTraining(threads),
        seed=config.seed,
        device=place,
        dtype=dtype,
        secure_aggregation=config.secure_aggregation,
    )
