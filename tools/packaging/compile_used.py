"""Compile the modules that a device imports, of Python, its packages and Solera, for device.Containerfile.

    python3 compile_used.py

Compiled files of all modules would take three times the space. A module that has none works, and is compiled
at every start that needs it. The files are taken as they are, whatever the times of their sources: nothing
changes in an image.
"""

from __future__ import annotations

import importlib
import py_compile
import sys
from contextlib import suppress
from pkgutil import walk_packages

PACKAGES = ("solera.cli", "solera.device", "solera.service")
BY_NAME = ("uvicorn.lifespan.on", "uvicorn.loops.auto")  # imported when a server starts


def import_all() -> None:
    """Import what a device may need; what needs an extra is left out."""
    for name in (*PACKAGES, *BY_NAME):
        importlib.import_module(name)
    for package in PACKAGES:
        for found in walk_packages(sys.modules[package].__path__, f"{package}."):
            with suppress(ImportError):
                importlib.import_module(found.name)
    sys.argv = ["solera", "device", "open", "--help"]  # what draws tables is imported when one is drawn
    with suppress(SystemExit):
        importlib.import_module("solera.__main__").main()


if __name__ == "__main__":
    import_all()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if file.endswith(".py"):
            py_compile.compile(file, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
