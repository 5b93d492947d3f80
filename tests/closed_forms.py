"""Methods of one round, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from solera.core.closed_form import ClosedForm
from solera.methods import find


def closed_form(name: str, options: Mapping[str, Any] | None = None) -> ClosedForm:
    """The method of that name; a method of many rounds is an error."""
    method = find(name, options)
    assert isinstance(method, ClosedForm)
    return method
