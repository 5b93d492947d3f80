"""What is added from outside: commands, methods, data sets and metrics.

A file of one's own registers methods, data sets or metrics when it is executed. The environment variable
SOLERA_IMPORT names such files, because other processes (nodes, workers, benchmarks) must know the same.
There is no other way to name a file, so no bundle or server can have one executed.

An installed package names its module, or its command, under an entry point:

    [project.entry-points."solera.methods"]   # or "solera.datasets", "solera.metrics"
    fedbias = "my_package.fedbias"            # is imported, and registers `fedbias`

    [project.entry-points."solera.commands"]
    hello = "my_package.cli:hello"            # `solera hello`: a function or a `typer.Typer`
    "bench.hello" = "my_package.cli:hello"    # `solera bench hello`
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from solera.core.errors import ConfigError, SoleraError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

VARIABLE = "SOLERA_IMPORT"
FORMER = "SOLERA_METHODS"  # its name in 0.2, which works until 0.4
Kind = Literal["commands", "methods", "datasets", "metrics"]


@cache
def installed() -> EntryPoints:
    """All entry points, for which a file of every installed package is read."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - most commands do not wait for it

    found: Any = entry_points()  # of a type that older Pythons had
    return cast("EntryPoints", found)


@cache
def entries(kind: Kind) -> tuple[EntryPoint, ...]:
    """The entry points of installed packages, in order of their names."""
    return tuple(sorted(installed().select(group=f"solera.{kind}")))


def own_files() -> list[Path]:
    """The files of one's own in the given order, separated as in PATH."""
    named = os.environ.get(VARIABLE, "")
    if FORMER in os.environ:
        warnings.warn(f"{FORMER} is now called {VARIABLE}", FutureWarning, stacklevel=2)
        named = named or os.environ[FORMER]
    return [Path(name) for name in named.split(os.pathsep) if name]


def import_extensions(kind: Kind) -> None:
    """Execute each file once, and import the modules of entry points: they register what they have."""
    for file in own_files():
        name = re.sub(r"\W", "_", f"solera_import{file.resolve()}")
        if name not in sys.modules:
            hint = f"mend the file; `python {file}` shows where it fails"
            _loaded(partial(_execute, file, name), repr(str(file)), hint)
    for entry in entries(kind):
        where = f"{entry.value}, an entry point of solera.{kind}"
        _loaded(entry.load, where, "mend or uninstall its package")


def digests() -> dict[str, str]:
    """SHA-256 of each file of one's own, to record which code a run used."""
    from hashlib import sha256  # noqa: PLC0415 - `solera --help` does not wait for it

    return {file.name: sha256(file.read_bytes()).hexdigest() for file in own_files()}


def _loaded(load: Callable[[], object], what: str, hint: str) -> None:
    try:
        load()
    except SoleraError:
        raise
    except Exception as error:
        raise ConfigError(f"{what} cannot be loaded: {type(error).__name__}: {error}", hint) from error


def _execute(file: Path, name: str) -> None:
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ConfigError(f"the Python file {str(file)!r} does not exist", f"correct --import or {VARIABLE}")
    sys.modules[name] = module_from_spec(spec)  # where pydantic resolves annotations
    try:
        spec.loader.exec_module(sys.modules[name])
    except BaseException:
        del sys.modules[name]
        raise
