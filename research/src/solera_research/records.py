"""Records of experiments, in tables as those of matrices, and what each says of its making."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any, Literal

from solera.runs import RunConfig
from solera.runs.environment import Code, anonymous, environment, source
from solera.study.records import TableRow, asked


class Experiment(TableRow):
    """What was done to one training: command, settings, machine and version, without paths and host names."""

    format: Literal[1] = 1
    command: str
    method: str
    dataset: str
    protocol: str
    seed: int
    config: dict[str, Any]
    environment: dict[str, Any]
    code: Code

    def _named(self, *parts: str) -> str:
        """Data set and distinguishing settings."""
        named = "--".join(re.sub(r"[^a-z0-9.+=]+", "-", part.lower()) for part in parts)
        return f"{self.dataset}/{named}"


class Measured(TableRow):
    """Figures that a page shows."""

    key: str
    content: dict[str, Any]

    @property
    def name(self) -> str:
        """The key."""
        return self.key


def made_by(config: RunConfig, threads: int) -> dict[str, Any]:
    """The fields that all experiments have, but for the method."""
    wanted = asked(config.full_method, config)
    words = (Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])
    return {
        "command": shlex.join(["solera", *words]),
        "dataset": wanted.dataset,
        "protocol": config.protocol,
        "seed": config.seed,
        "config": wanted.config,
        "environment": anonymous(environment(threads, "cpu")),
        "code": source(),
    }
