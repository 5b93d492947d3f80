"""Make a package callable when a public function has the same name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(name: str, function: Callable[..., Any]) -> None:
    """Make `package(…)` call the function, because importing a package hides a function of the same name."""
    kind = type("CallableModule", (ModuleType,), {"__call__": staticmethod(function)})
    sys.modules[name].__class__ = kind
