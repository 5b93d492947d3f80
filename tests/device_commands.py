"""Commands, run in this process: their output as text or as JSON."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from solera.cli import app


def run(*args: object, answers: str | None = None) -> str:
    done = CliRunner().invoke(app, [str(arg) for arg in args], input=answers, env={"COLUMNS": "200"})
    if done.exception:
        raise done.exception
    return done.stdout


def run_json(*args: object) -> Any:
    return json.loads(run(*args, "--json"))
