"""The error class of secure aggregation."""

from __future__ import annotations

from solera.core.errors import SoleraError


class SecAggError(SoleraError):
    """A refused message, state or request, with the reason. No secret was revealed."""
