"""The command line without a process of its own, which would take seconds to start."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from solera.cli import app, main


def solera(*args: object, cwd: Path | None = None) -> CompletedProcess[str]:
    """Exit code and both streams of `solera ARGS…`, in the folder `cwd`."""
    given, stdout, stderr = [str(arg) for arg in args], io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(os.environ),  # what a command sets is for itself alone, as in a process of its own
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", ["solera", *given])
        patch.delenv("SOLERA_TRACEBACK", raising=False)
        main()
    code = ended.value.code
    return CompletedProcess(given, code if isinstance(code, int) else 0, stdout.getvalue(), stderr.getvalue())


def run(*args: object, answers: str | None = None) -> str:
    """What a command says; an error is raised."""
    done = CliRunner().invoke(app, [str(arg) for arg in args], input=answers, env={"COLUMNS": "200"})
    if done.exception:
        raise done.exception
    return done.stdout


def run_json(*args: object) -> Any:
    return json.loads(run(*args, "--json"))
