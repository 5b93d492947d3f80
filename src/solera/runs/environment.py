"""The machine and the package versions used for a run."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from solera.core.extensions import digests

PACKAGES = ("solera", "torch", "numpy", "polars", "pydantic", "safetensors")


def package_version(name: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def used_bytes() -> int | None:
    """The memory that this process has now, or its peak if the system does not report more."""
    return reported_bytes("VmRSS") or peak_bytes()


def reported_bytes(name: str, process: int | str = "self") -> int | None:
    """What Linux reports of a process alone; `ru_maxrss` starts from the parent's memory."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def peak_bytes() -> int | None:
    """The peak memory of this process, or None if the system does not report it."""
    if found := reported_bytes("VmHWM"):
        return found
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def environment(threads: int, device: str) -> dict[str, Any]:
    """What may explain differences in running time or in the last digits."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device,
        "packages": {name: package_version(name) for name in PACKAGES},
    } | ({"methods": own} if (own := digests()) else {})
