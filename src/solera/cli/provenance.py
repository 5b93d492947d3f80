"""Provenance that every record of an experiment contains."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solera.runs import RunConfig


def made_by(config: RunConfig, threads: int) -> dict[str, Any]:
    """Command, settings, machine and version, without paths and host names."""
    from solera.bench.machine import anonymous, source
    from solera.bench.records import asked
    from solera.runs.environment import environment

    wanted, (commit, dirty) = asked(config.full_method, config), source()
    words = (Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])
    return {
        "command": shlex.join(["solera", *words]),
        "dataset": wanted.dataset,
        "protocol": config.protocol,
        "seed": config.seed,
        "config": wanted.config,
        "environment": anonymous(environment(threads, "cpu")),
        "code": {"commit": commit, "dirty": dirty},
    }
