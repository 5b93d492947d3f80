"""Programs of tools/, which are no part of the package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parent.parent / "tools"


def program(name: str) -> Any:
    """Import `tools/<name>.py` as a module."""
    spec = importlib.util.spec_from_file_location(Path(name).name, TOOLS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
