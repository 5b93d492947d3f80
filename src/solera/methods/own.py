"""Files with methods of your own: those that the environment variable SOLERA_METHODS names.

A variable, because other processes (nodes, workers, benchmarks) have to know the same methods; and nothing
but a variable, so that no bundle and no server can name a file to be run.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from solera.core.errors import ConfigError

VARIABLE = "SOLERA_METHODS"


def own_files() -> list[Path]:
    """The files in the order given, separated like those of PATH."""
    return [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def import_own() -> None:
    """Run each file once; it registers its methods."""
    for file in own_files():
        name = f"solera_methods_{sha256(bytes(file.resolve())).hexdigest()[:12]}"
        if name in sys.modules:
            continue
        spec = spec_from_file_location(name, file)
        if spec is None or spec.loader is None or not file.is_file():
            raise ConfigError(
                f"the Python file {str(file)!r} does not exist", f"correct --methods or {VARIABLE}"
            )
        sys.modules[name] = module_from_spec(spec)  # where pydantic looks up what annotations mean
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise


def digests() -> dict[str, str]:
    """SHA-256 of each file: which code a run was made with."""
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in own_files()}
