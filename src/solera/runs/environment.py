"""The machine and the versions a run was made with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from solera.methods.own import digests

PACKAGES = ("solera", "torch", "numpy", "polars", "pydantic", "safetensors")


def package_version(name: str) -> str | None:
    """The installed version of a package, None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def environment(threads: int, device: str) -> dict[str, Any]:
    """What may explain a difference in seconds, or in the last digits."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device,
        "packages": {name: package_version(name) for name in PACKAGES},
    } | ({"methods": own} if (own := digests()) else {})
