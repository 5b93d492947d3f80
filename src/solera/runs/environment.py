"""The machine, the package versions and the source used for a run, and what of these is recorded."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import solera
from solera.core.errors import RunError
from solera.core.extensions import digests
from solera.core.frozen import Frozen

PACKAGES = ("solera", "torch", "numpy", "polars", "pydantic", "safetensors")
_RESEARCH = ("research/src", "research/experiments")  # of the repository: programs that make records, too


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


def anonymous(environment: Mapping[str, Any]) -> dict[str, Any]:
    """A run's environment with the system's name alone instead of its kernel's."""
    kept = {key: value for key, value in environment.items() if key != "platform"}
    return {"system": str(environment.get("platform", "")).split("-")[0], **kept}


class Code(Frozen):
    """The commit of the program's source, and whether the source differed from it; None if unknown."""

    commit: str | None = None
    dirty: bool | None = None


def source() -> Code:
    """The source of this program."""
    package = Path(solera.__file__).parent
    tracked = _git(package, "ls-files", "--error-unmatch", "__init__.py")
    commit = _git(package, "rev-parse", "HEAD") if tracked else None  # not of a repository around a venv
    places = [f":/{each}" for each in _RESEARCH]
    changes = _git(package, "status", "--porcelain", "--", ".", *places) if commit else None
    return Code(commit=commit, dirty=None if changes is None else bool(changes))


def check_committed(records: Path) -> None:
    """Refuse records into a checkout of Solera unless they name the commit whose source made them.

    Whatever makes records calls this before it begins.
    """
    code = source()
    if code.commit and code.dirty is False:
        return
    there = next(each for each in records.resolve().parents if each.is_dir())
    root = _git(there, "rev-parse", "--show-toplevel")
    if root and (Path(root) / "src" / "solera" / "__init__.py").exists():
        what = "a source with uncommitted changes" if code.commit else "a source whose commit is unknown"
        raise RunError(
            f"{records} would get records of {what}",
            "run the program of a checkout without changes, or give a folder outside the repository",
        )


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
