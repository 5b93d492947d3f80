"""Files with your own methods, named by the environment variable SOLERA_METHODS.

It is a variable because other processes (nodes, workers, benchmarks) must know the same methods. There is no
other way to name a file, so no bundle or server can have a file executed.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from solera.core.errors import ConfigError, SoleraError

VARIABLE = "SOLERA_METHODS"


def own_files() -> list[Path]:
    """The files in the given order, separated as in PATH."""
    return [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def import_own() -> None:
    """Execute each file once, so that it registers its methods."""
    for file in own_files():
        name = f"solera_methods_{sha256(bytes(file.resolve())).hexdigest()[:12]}"
        if name in sys.modules:
            continue
        spec = spec_from_file_location(name, file)
        if spec is None or spec.loader is None or not file.is_file():
            raise ConfigError(
                f"the Python file {str(file)!r} does not exist", f"correct --methods-file or {VARIABLE}"
            )
        sys.modules[name] = module_from_spec(spec)  # where pydantic resolves annotations
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, SoleraError) or not isinstance(error, Exception):
                raise
            raise ConfigError(
                f"the methods in {str(file)!r} cannot be loaded: {type(error).__name__}: {error}",
                f"mend the file; `python {file}` shows where it fails",
            ) from error


def digests() -> dict[str, str]:
    """SHA-256 of each file, to record which code a run used."""
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in own_files()}
