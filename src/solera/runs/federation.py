"""Build the simulated federation for a run's settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from solera.coding import download_coding, upload_coding
from solera.core.closed_form import AnyMethod
from solera.core.content import ItemAttributes
from solera.core.errors import ConfigError
from solera.core.method import Method
from solera.core.protection import Chain, Step
from solera.data.interactions import Split
from solera.data.sampling import ClientData
from solera.dp.laplace import LaplaceNoise
from solera.dp.noise import Seeded
from solera.dp.one_round import PrivateSum
from solera.dp.rounds import PrivateRounds
from solera.dp.settings import check_private
from solera.engine import BlockTraining, OneRound, Simulation
from solera.engine.ranks import Ranks
from solera.engine.row_store import IN_MEMORY
from solera.runs.settings import RunConfig

Federation = Simulation | OneRound


def clients_of(split: Split) -> ClientData:
    """The clients of a federation that trains on the training part of a split."""
    return ClientData(split.train, split.excluded, split.data.n_items)


def federation(
    config: RunConfig,
    method: AnyMethod,
    clients: ClientData,
    threads: int,
    device: str,
    *,
    ranks: Ranks | None = None,
    memory: int | None = None,
    attributes: ItemAttributes | None = None,
) -> Federation:
    """Server and clients before their first round. With `ranks`, those clients that this one owns.

    `attributes` are those of the items, if they are known.

    With `memory`, an eighth of it may hold rows of clients, and another eighth those of the best state; more
    are in mapped files.
    """
    try:
        place = torch.device(device)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {device!r} cannot be used: {reason}", "try --device cpu") from None
    dtype = torch.float64 if config.precision == "double" else torch.float32
    if ranks:
        check_workers(config, method)
    if method.one_round:
        if config.noise:
            raise ConfigError(
                f"{method.name!r} has no uploads that --noise could change",
                "omit --noise, or give --dp instead",
            )
        method = replace(method, attributes=attributes)
        return OneRound(
            method,
            clients,
            device=place,
            dtype=dtype,
            secure_aggregation=config.secure_aggregation,
            protection=PrivateSum(config.dp, Seeded(config.seed)) if config.dp else None,
            ranks=ranks,
        )
    return Simulation(
        method,
        clients,
        BlockTraining(threads),
        seed=config.seed,
        device=place,
        dtype=dtype,
        protection=protection(config, method, clients),
        download=download_coding(config.download, method, config.seed) if config.download else None,
        rows_in_memory=IN_MEMORY if memory is None else memory // 8,
        ranks=ranks,
    )


def check_workers(config: RunConfig, method: AnyMethod) -> None:
    """Refuse what several workers cannot do."""
    if config.dp or config.noise or config.secure_aggregation:
        raise ConfigError(
            "several workers cannot protect uploads yet",
            "omit --workers, or --dp, --noise and --secure-aggregation",
        )
    if not method.one_round and method.aggregate.sifts:
        raise ConfigError(
            f"the server of {method.name!r} needs single clients' uploads, which workers do not exchange",
            "omit --workers",
        )


def protection(config: RunConfig, method: Method, clients: ClientData) -> Chain:
    """The protection chain of a run's uploads: coding, clipping and noise, then masks."""
    steps: list[Step] = []
    if config.noise:
        steps.append(LaplaceNoise(config.noise, config.seed, clients.n_items))
    if config.dp:
        check_private(method)
        users = int(np.count_nonzero(clients.train.lengths))
        share = method.config.clients_per_round
        steps.append(PrivateRounds(config.dp, share, users, Seeded(config.seed)))
    coding = upload_coding(config.upload) if config.upload else None
    return Chain(tuple(steps), masked=config.secure_aggregation, coding=coding)
