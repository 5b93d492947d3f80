"""Train a method on a data set under a protocol, in this process or together with other ranks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from solera.core.errors import ConfigError, RunError
from solera.core.federated import AnyMethod
from solera.data.interactions import Interactions
from solera.engine import OneRound
from solera.engine.process import torch_threads
from solera.engine.ranks import Ranks
from solera.evaluate import OnUsers
from solera.methods import find
from solera.runs.config import VALIDATED, RunConfig
from solera.runs.environment import environment
from solera.runs.folder import RunFolder
from solera.runs.plan import RunPlan, plan_of
from solera.runs.progress import Progress
from solera.runs.result import RoundEntry
from solera.runs.rounds import Training
from solera.runs.run import Run


def train(
    config: RunConfig,
    data: Interactions,
    *,
    out: Path | None = None,
    resume: bool = False,
    threads: int = 0,
    device: str = "cpu",
    on_round: Callable[[Progress], None] | None = None,
    on_clients: Callable[[int, int], None] | None = None,
    on_users: OnUsers | None = None,
    stop: threading.Event | None = None,
    memory: int | None = None,
    on_plan: Callable[[RunPlan], None] | None = None,
    shard_tables: bool = False,
) -> Run:
    """Train a method with the settings in `config`, and write the run to `out` if given.

    The round is selected on validation. The test items are scored once, at the end, with that
    round's state. Ctrl-C ends the run after the current round, to be resumed. If `stop` is given, setting it
    does this instead. `on_clients` is called during the round of a method that has only one round, with the
    number of clients done and their total, `on_users` during the test at the end.

    With `memory`, in bytes, a run that would take more is refused, and chunks are chosen to fit. `on_plan`
    receives the estimates of a run with that limit, or with more than 10,000 users.

    With `shard_tables`, each of several ranks holds some rows of every item table, and none a whole table.
    """
    config, method = _method(config)
    ranks = Ranks.joined()
    if ranks:
        return _train_together(
            ranks,
            config,
            method,
            data,
            out=out,
            resume=resume,
            threads=threads,
            memory=memory,
            on_round=on_round,
            on_users=on_users,
            shard_tables=shard_tables,
        )
    if shard_tables:
        raise ConfigError("tables are divided among several workers", "give --workers, or use torchrun")
    check_folder(out, config, resume)
    if out is not None and (out / "config.json").exists() and RunFolder.open(out).result:
        return Run.open(out, data=data)
    training = Training(config, method, data, threads, device, memory=memory)
    if isinstance(training.simulation, OneRound):
        training.simulation.on_clients = on_clients
    if memory is not None or (on_plan and data.n_users > VALIDATED):
        _plan(training, memory, threads, on_plan)
    folder = _folder(out, config, resume, environment(threads, device))
    if folder and data.origin is None:
        folder.keep_data(data)
    with torch_threads(threads):
        return training.run(folder, on_round, stop, on_users=on_users)


def plan(
    config: RunConfig, data: Interactions, *, threads: int = 0, device: str = "cpu", memory: int | None = None
) -> RunPlan:
    """Estimate what `train` would take with the same arguments, and train nothing."""
    config, method = _method(config)
    training = Training(config, method, data, threads, device, memory=memory)
    with torch_threads(threads):
        return plan_of(training, memory, threads)


def _plan(
    training: Training, memory: int | None, threads: int, on_plan: Callable[[RunPlan], None] | None
) -> None:
    with torch_threads(threads):
        found = plan_of(training, memory, threads)
    if on_plan:
        on_plan(found)
    found.check()


def _train_together(
    ranks: Ranks,
    config: RunConfig,
    method: AnyMethod,
    data: Interactions,
    *,
    out: Path | None,
    resume: bool,
    threads: int,
    memory: int | None,
    on_round: Callable[[Progress], None] | None,
    on_users: OnUsers | None,
    shard_tables: bool,
) -> Run:
    """This rank's part of a run. The first rank writes the folder, and all ranks open it at the end.

    A rank that was lost is started again together with all others; then the run resumes by itself.
    """
    if out is None:
        raise ConfigError("several workers need a folder for the run", "give --out")
    first, restarted = ranks.rank == 0, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    folder = None
    if first:
        check_folder(out, config, resume or restarted)
        folder = _folder(out, config, True, environment(threads, "cpu"))
        if folder and data.origin is None:
            folder.keep_data(data)
    ranks.wait()
    if RunFolder.open(out).result is None:
        training = Training(
            config,
            method,
            data,
            threads or 1,
            "cpu",
            ranks=ranks,
            memory=memory,
            shard_tables=shard_tables,
        )
        place = RunFolder.open(out)
        if not first:
            on_round = on_users = None
        with torch_threads(threads or 1):
            training.run(folder, on_round, None, read=place, on_users=on_users)
    ranks.wait()
    return Run.finished(out, data) if shard_tables else Run.open(out, data=data)


def validate_rounds(
    config: RunConfig,
    data: Interactions,
    *,
    threads: int = 0,
    on_round: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> list[RoundEntry]:
    """The history of a run that never uses the test items, for choosing settings."""
    config, method = _method(config)
    training = Training(config, method, data, threads, "cpu")
    with torch_threads(threads):
        training.rounds(None, on_round, stop)
    return training.history


def _method(config: RunConfig) -> tuple[RunConfig, AnyMethod]:
    """The method and its resolved settings, so that equal runs have equal settings."""
    method = find(config.method, config.options, config.plugins)
    if config.rounds != (method.rounds_needed or config.rounds):
        raise ConfigError(f"{method.name!r} needs one round, not {config.rounds}", "omit --rounds")
    return config.resolved(), method


def _folder(
    out: Path | None, config: RunConfig, resume: bool, environment_: dict[str, Any]
) -> RunFolder | None:
    if out is None:
        return None
    if resume and (out / "config.json").exists():
        return RunFolder.open(out)
    return RunFolder.create(out, config, environment_)


def check_folder(out: Path | None, config: RunConfig, resume: bool) -> None:
    """Refuse a folder that holds another run, before data are loaded."""
    if out is None or not (out / "config.json").exists():
        return
    folder = RunFolder.open(out)
    if difference := config.resolved().difference(folder.config):
        raise RunError(f"{out} contains another run: {difference}", "give another --out")
    if not resume:
        finished = folder.result is not None
        raise RunError(
            f"{out} contains {'this' if finished else 'an unfinished'} run already",
            "give another --out" if finished else "give --resume to continue it, or another --out",
        )
