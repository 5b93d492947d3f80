"""A package that can be called, where a function of the interface has the same name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(name: str, function: Callable[..., Any]) -> None:
    """Let `package(…)` do what the function does: importing a package hides a function of its name."""
    kind = type("CallableModule", (ModuleType,), {"__call__": staticmethod(function)})
    sys.modules[name].__class__ = kind
