"""The command line without a process of its own, which would take seconds to start."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

import pytest

from solera.cli import main


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
